//! A page cut into its shape and its words: what pages made of one template have in common, and what they
//! have not.

use super::scan::{Attribute, Piece, What, scan};

/// A page without its words, and the words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cut<'a> {
    /// All that comes before what is in the body.
    pub(super) head: Part<'a>,
    /// The shapes that occur, in the order in which they come first.
    pub(super) shapes: Vec<String>,
    /// What is in the body: which shape, and with which words.
    pub(super) parts: Vec<(usize, Vec<Word<'a>>)>,
    /// All that comes after it.
    pub(super) tail: &'a str,
}

/// A part of a page.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Part<'a> {
    /// What it looks like, with a [`HOLE`] where a word was.
    pub(super) shape: String,
    /// The words, in their order.
    pub(super) words: Vec<Word<'a>>,
}

/// What was said in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word<'a> {
    /// Between tags.
    Text(&'a str),
    /// In a tag, or where the renderer puts it into one.
    Value(&'a str),
}

/// Stands for a word. No text that anybody can read has it.
pub(super) const HOLE: char = '\u{1}';

/// Elements of which the renderer says what is in them, and looks at nothing but its end.
const TOLD: [&str; 4] = ["mj-text", "mj-button", "mj-table", "mj-preview"];
/// The same of attributes: what they are does not change what is around them, if they are something.
const VALUES: [&str; 4] = ["href", "src", "alt", "title"];
/// Elements whose attributes of these names are worked with.
const WORKED_WITH: [&str; 3] = ["mj-social-element", "mj-navbar-link", "mj-section"];
/// What stands in a body and is rendered by itself, whatever is beside it.
const ALONE: [&str; 3] = ["mj-section", "mj-wrapper", "mj-hero"];
/// What gets a number from the renderer, so that it knows what came before.
const NUMBERED: [&str; 2] = ["mj-carousel", "mj-navbar"];
/// What may say how wide columns are.
const SIZED: [&str; 4] = ["mj-column", "mj-group", "mj-class", "mj-all"];

impl<'a> Cut<'a> {
    /// Nothing if the page is such that its parts cannot be rendered by themselves.
    pub(super) fn of(page: &'a str) -> Option<Self> {
        if page.contains(HOLE) {
            return None;
        }
        let mut cutter = Cutter::default();
        let mut cut =
            Self { head: Part::default(), shapes: Vec::new(), parts: Vec::new(), tail: "" };
        let mut at = 0;
        for piece in scan(page).ok()? {
            let ended = cutter.add(&piece)?;
            at += piece.raw.len();
            match ended {
                Ended::Nothing => {}
                Ended::Head => cut.head = std::mem::take(&mut cutter.part),
                Ended::Child => cut.keep(std::mem::take(&mut cutter.part)),
                Ended::Body => {
                    cut.tail = &page[at - piece.raw.len()..];
                    return Some(cut);
                }
            }
        }
        None
    }

    fn keep(&mut self, part: Part<'a>) {
        let known = self.shapes.iter().position(|shape| *shape == part.shape);
        let shape = known.unwrap_or_else(|| {
            self.shapes.push(part.shape);
            self.shapes.len() - 1
        });
        self.parts.push((shape, part.words));
    }
}

/// What came to its end with a piece.
enum Ended {
    Nothing,
    Head,
    Child,
    Body,
}

#[derive(Default)]
struct Cutter<'a> {
    part: Part<'a>,
    /// The components around us, the innermost last.
    open: Vec<&'a str>,
}

impl<'a> Cutter<'a> {
    /// Nothing for what makes the page one that cannot be cut.
    fn add(&mut self, piece: &Piece<'a>) -> Option<Ended> {
        let within = self.open.last().copied();
        match &piece.what {
            // Between the body's children the renderer leaves out blanks if they begin with a new line.
            What::Text if within == Some("mj-body") => {
                let left_out = piece.raw.starts_with('\n') && piece.raw.trim().is_empty();
                left_out.then_some(Ended::Nothing)
            }
            What::Text => {
                self.text(piece.raw, within);
                Some(Ended::Nothing)
            }
            What::Open { name, attributes, closed } => {
                let alone = within != Some("mj-body") || ALONE.contains(name);
                let elsewhere = *name == "mj-body" && self.open != ["mjml"];
                if !alone || elsewhere || knows_others(name, attributes) {
                    return None;
                }
                self.tag(piece.raw, name, attributes);
                match (*name, closed) {
                    (_, true) if within == Some("mj-body") => Some(Ended::Child),
                    (_, true) => Some(Ended::Nothing),
                    (name, false) => {
                        if name.starts_with("mj") {
                            self.open.push(name);
                        }
                        Some(if name == "mj-body" { Ended::Head } else { Ended::Nothing })
                    }
                }
            }
            What::Close { name } => {
                self.part.shape.push_str(piece.raw);
                if !name.starts_with("mj") {
                    return Some(Ended::Nothing);
                }
                if self.open.pop() != Some(name) {
                    return None;
                }
                Some(match (*name, self.open.last()) {
                    ("mj-body", _) => Ended::Body,
                    (_, Some(&"mj-body")) => Ended::Child,
                    _ => Ended::Nothing,
                })
            }
            What::Comment if within == Some("mj-body") => None,
            What::Comment | What::Sheet | What::Prologue => {
                self.part.shape.push_str(piece.raw);
                Some(Ended::Nothing)
            }
        }
    }

    fn text(&mut self, raw: &'a str, within: Option<&str>) {
        let word = raw.trim();
        let kind = match within {
            Some("mj-title") if !self.open.contains(&"mj-body") => Word::Value,
            Some(name) if TOLD.contains(&name) => Word::Text,
            _ => {
                self.part.shape.push_str(raw);
                return;
            }
        };
        if word.is_empty() {
            self.part.shape.push_str(raw);
            return;
        }
        // The blanks around it may mean something.
        self.hole(raw, word, kind(word));
    }

    fn tag(&mut self, raw: &'a str, name: &str, attributes: &[Attribute<'a>]) {
        let mut rest = raw;
        if self.open.contains(&"mj-body") && !WORKED_WITH.contains(&name) {
            for one in attributes {
                if VALUES.contains(&one.name) && !one.value.trim().is_empty() {
                    // Attributes come in their order, and each value is a part of the tag.
                    let at = one.value.as_ptr() as usize - rest.as_ptr() as usize;
                    let end = at + one.value.len();
                    self.hole(&rest[..end], one.value, Word::Value(one.value));
                    rest = &rest[end..];
                }
            }
        }
        self.part.shape.push_str(rest);
    }

    /// Says `raw` with a hole in the place of a word that is a slice of it.
    fn hole(&mut self, raw: &'a str, word: &'a str, kept: Word<'a>) {
        let at = word.as_ptr() as usize - raw.as_ptr() as usize;
        self.part.shape.push_str(&raw[..at]);
        self.part.shape.push(HOLE);
        self.part.shape.push_str(&raw[at + word.len()..]);
        self.part.words.push(kept);
    }
}

/// What depends on what else is on the page, or changes it.
fn knows_others(name: &str, attributes: &[Attribute<'_>]) -> bool {
    let local = name.rsplit(':').next().unwrap_or(name);
    let ours = local.get(..2).is_some_and(|mj| mj.eq_ignore_ascii_case("mj"));
    // In capitals or with a prefix: the renderer knows it, and we would not.
    let disguised = ours && (local != name || local.bytes().any(|byte| byte.is_ascii_uppercase()));
    // Rules that are written into every element they are for: those may know their neighbours.
    let inline = |one: &Attribute<'_>| one.name.rsplit(':').next() == Some("inline");
    let inlined = name == "mj-style" && attributes.iter().any(inline);
    // The head knows columns' widths without their unit: of `200` and `200px` the last counts.
    let bare = |one: &Attribute<'_>| one.name == "width" && one.value.parse::<f32>().is_ok();
    let bare = SIZED.contains(&name) && attributes.iter().any(bare);
    disguised || inlined || bare || NUMBERED.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(body: &str) -> String {
        format!("<mjml><mj-head><mj-title>T</mj-title></mj-head><mj-body>{body}</mj-body></mjml>")
    }

    #[test]
    fn parts_of_one_shape_differ_in_their_words_only() {
        let section = |word: &str, link: &str| {
            format!(
                "\n<mj-section><mj-column><mj-text> {word} <a href='{link}'>x</a></mj-text></mj-column></mj-section>"
            )
        };
        let page = page(&format!("{}{}<mj-hero/>\n", section("one", "/1"), section("two", "/2")));
        let cut = Cut::of(&page).expect("it can be cut");
        assert_eq!(cut.head.words, [Word::Value("T")]);
        assert_eq!(cut.shapes.len(), 2, "{:?}", cut.shapes);
        let kinds: Vec<usize> = cut.parts.iter().map(|(shape, _)| *shape).collect();
        assert_eq!(kinds, [0, 0, 1]);
        assert_eq!(cut.parts[1].1, [Word::Text("two"), Word::Value("/2"), Word::Text("x")]);
        assert_eq!(cut.tail, "</mj-body></mjml>");
    }

    #[test]
    fn what_knows_its_neighbours_is_not_cut() {
        for body in [
            "<mj-section><mj-column><mj-navbar></mj-navbar></mj-column></mj-section>",
            "<mj-section><mj-column><mj-carousel></mj-carousel></mj-column></mj-section>",
            "<mj-section><mj-column><MJ-Navbar></MJ-Navbar></mj-column></mj-section>",
            "<mj-section><mj-column><x:mj-carousel></x:mj-carousel></mj-column></mj-section>",
            "<mj-section><mj-column width=\"200\"></mj-column></mj-section>",
            "<mj-column></mj-column>",
            "<mj-text>x</mj-text>",
            "loose",
            " <mj-section></mj-section>",
            "<!-- c --><mj-section></mj-section>",
            "<mj-section></mj-column>",
            "<mj-section><mj-column><mj-text>\u{1}</mj-text></mj-column></mj-section>",
        ] {
            assert_eq!(Cut::of(&page(body)), None, "{body}");
        }
        for head in [
            "<mj-style inline=\"inline\">a{}</mj-style>",
            "<mj-raw><mj-body><mj-section></mj-section></mj-body></mj-raw>",
            "<mj-attributes><mj-column width=\"200\"/></mj-attributes>",
        ] {
            let page = format!("<mjml><mj-head>{head}</mj-head><mj-body></mj-body></mjml>");
            assert_eq!(Cut::of(&page), None, "{head}");
        }
    }
}
