//! Splits a page into its structure and its values: what pages of one template share, and what differs.

use super::lexer::{Attribute, MarkupKind, MarkupToken, tokenise};

/// A page split into part shapes and slot values.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SplitPage<'a> {
    /// Everything before the body's children.
    pub(super) head: Part<'a>,
    /// The distinct shapes, in order of first occurrence.
    pub(super) shapes: Vec<String>,
    /// The body's children: the index of each one's shape, and its slot values.
    pub(super) parts: Vec<(usize, Vec<SlotValue<'a>>)>,
    /// Everything after the body's children.
    pub(super) tail: &'a str,
}

/// A part of a page: its markup and the values taken out of it.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Part<'a> {
    /// The markup, with a [`SLOT`] in place of each value.
    pub(super) shape: String,
    /// The values, in order of their slots.
    pub(super) values: Vec<SlotValue<'a>>,
}

/// A value that was replaced by a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotValue<'a> {
    /// Text between tags.
    Text(&'a str),
    /// An attribute value, or text that the renderer puts into an attribute.
    Attribute(&'a str),
}

/// Placeholder for a value: a control character that no readable text contains.
pub(super) const SLOT: char = '\u{1}';

/// Elements with content that the renderer copies to the output, looking only for the end tag.
const TEXT_ELEMENTS: [&str; 4] = ["mj-text", "mj-button", "mj-table", "mj-preview"];
/// Attributes with a value that, if not empty, does not affect the surrounding output.
const VARIABLE_ATTRIBUTES: [&str; 4] = ["href", "src", "alt", "title"];
/// Elements in which the renderer does process the [`VARIABLE_ATTRIBUTES`].
const FIXED_ELEMENTS: [&str; 3] = ["mj-social-element", "mj-navbar-link", "mj-section"];
/// Children of the body that are rendered independently of their siblings.
const INDEPENDENT_ELEMENTS: [&str; 3] = ["mj-section", "mj-wrapper", "mj-hero"];
/// Elements that the renderer numbers, so that they depend on earlier ones.
const NUMBERED_ELEMENTS: [&str; 2] = ["mj-carousel", "mj-navbar"];
/// Elements with a column width.
const WIDTH_ELEMENTS: [&str; 4] = ["mj-column", "mj-group", "mj-class", "mj-all"];

impl<'a> SplitPage<'a> {
    /// `None` if the page's parts cannot be rendered independently.
    pub(super) fn new(page: &'a str) -> Option<Self> {
        if page.contains(SLOT) {
            return None;
        }
        let mut splitter = Splitter::default();
        let mut split = Self { head: Part::default(), shapes: Vec::new(), parts: Vec::new(), tail: "" };
        let mut at = 0;
        for token in tokenise(page).ok()? {
            let boundary = splitter.add(&token)?;
            at += token.raw.len();
            match boundary {
                Boundary::Nothing => {}
                Boundary::Head => split.head = std::mem::take(&mut splitter.part),
                Boundary::Child => split.add_part(std::mem::take(&mut splitter.part)),
                Boundary::Body => {
                    split.tail = &page[at - token.raw.len()..];
                    return Some(split);
                }
            }
        }
        None
    }

    fn add_part(&mut self, part: Part<'a>) {
        let position = self.shapes.iter().position(|shape| *shape == part.shape);
        let shape = position.unwrap_or_else(|| {
            self.shapes.push(part.shape);
            self.shapes.len() - 1
        });
        self.parts.push((shape, part.values));
    }
}

/// What a token completed.
enum Boundary {
    Nothing,
    Head,
    Child,
    Body,
}

#[derive(Default)]
struct Splitter<'a> {
    part: Part<'a>,
    /// The enclosing MJML elements, innermost last.
    open: Vec<&'a str>,
}

impl<'a> Splitter<'a> {
    /// `None` if the token makes the page impossible to split.
    fn add(&mut self, token: &MarkupToken<'a>) -> Option<Boundary> {
        let within = self.open.last().copied();
        match &token.kind {
            // Between the body's children the renderer drops white space that begins with a line break.
            MarkupKind::Text if within == Some("mj-body") => {
                let dropped = token.raw.starts_with('\n') && token.raw.trim().is_empty();
                dropped.then_some(Boundary::Nothing)
            }
            MarkupKind::Text => {
                self.text(token.raw, within);
                Some(Boundary::Nothing)
            }
            MarkupKind::Open { name, attributes, closed } => {
                let independent = within != Some("mj-body") || INDEPENDENT_ELEMENTS.contains(name);
                let misplaced = *name == "mj-body" && self.open != ["mjml"];
                if !independent || misplaced || depends_on_siblings(name, attributes) {
                    return None;
                }
                self.tag(token.raw, name, attributes);
                match (*name, closed) {
                    (_, true) if within == Some("mj-body") => Some(Boundary::Child),
                    (_, true) => Some(Boundary::Nothing),
                    (name, false) => {
                        if name.starts_with("mj") {
                            self.open.push(name);
                        }
                        Some(if name == "mj-body" { Boundary::Head } else { Boundary::Nothing })
                    }
                }
            }
            MarkupKind::Close { name } => {
                self.part.shape.push_str(token.raw);
                if !name.starts_with("mj") {
                    return Some(Boundary::Nothing);
                }
                if self.open.pop() != Some(name) {
                    return None;
                }
                Some(match (*name, self.open.last()) {
                    ("mj-body", _) => Boundary::Body,
                    (_, Some(&"mj-body")) => Boundary::Child,
                    _ => Boundary::Nothing,
                })
            }
            MarkupKind::Comment if within == Some("mj-body") => None,
            MarkupKind::Comment | MarkupKind::RawText | MarkupKind::Declaration => {
                self.part.shape.push_str(token.raw);
                Some(Boundary::Nothing)
            }
        }
    }

    fn text(&mut self, raw: &'a str, within: Option<&str>) {
        let text = raw.trim();
        let kind = match within {
            Some("mj-title") if !self.open.contains(&"mj-body") => SlotValue::Attribute,
            Some(name) if TEXT_ELEMENTS.contains(&name) => SlotValue::Text,
            _ => {
                self.part.shape.push_str(raw);
                return;
            }
        };
        if text.is_empty() {
            self.part.shape.push_str(raw);
            return;
        }
        // White space around the value may be significant, so it stays in the shape.
        self.push_slot(raw, text, kind(text));
    }

    fn tag(&mut self, raw: &'a str, name: &str, attributes: &[Attribute<'a>]) {
        let mut rest = raw;
        if self.open.contains(&"mj-body") && !FIXED_ELEMENTS.contains(&name) {
            for one in attributes {
                if VARIABLE_ATTRIBUTES.contains(&one.name) && !one.value.trim().is_empty() {
                    // Attributes are in source order, and each value is a slice of the tag.
                    let at = one.value.as_ptr() as usize - rest.as_ptr() as usize;
                    let end = at + one.value.len();
                    self.push_slot(&rest[..end], one.value, SlotValue::Attribute(one.value));
                    rest = &rest[end..];
                }
            }
        }
        self.part.shape.push_str(rest);
    }

    /// Appends `raw` to the shape with a slot in place of `text`, which is a slice of it.
    fn push_slot(&mut self, raw: &'a str, text: &'a str, value: SlotValue<'a>) {
        let at = text.as_ptr() as usize - raw.as_ptr() as usize;
        self.part.shape.push_str(&raw[..at]);
        self.part.shape.push(SLOT);
        self.part.shape.push_str(&raw[at + text.len()..]);
        self.part.values.push(value);
    }
}

/// Whether an element depends on other elements of the page, or affects them.
fn depends_on_siblings(name: &str, attributes: &[Attribute<'_>]) -> bool {
    let local = name.rsplit(':').next().unwrap_or(name);
    let ours = local.get(..2).is_some_and(|mj| mj.eq_ignore_ascii_case("mj"));
    // The renderer recognises upper case and prefixes; the checks here do not.
    let renamed = ours && (local != name || local.bytes().any(|byte| byte.is_ascii_uppercase()));
    // Inlined CSS rules are written into matching elements, and may have sibling selectors.
    let inline = |one: &Attribute<'_>| one.name.rsplit(':').next() == Some("inline");
    let inlined = name == "mj-style" && attributes.iter().any(inline);
    // The renderer's head keys column widths without the unit: of `200` and `200px` the last wins.
    let bare = |one: &Attribute<'_>| one.name == "width" && one.value.parse::<f32>().is_ok();
    let bare = WIDTH_ELEMENTS.contains(&name) && attributes.iter().any(bare);
    renamed || inlined || bare || NUMBERED_ELEMENTS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(body: &str) -> String {
        format!("<mjml><mj-head><mj-title>T</mj-title></mj-head><mj-body>{body}</mj-body></mjml>")
    }

    #[test]
    fn parts_of_one_shape_differ_in_their_words_only() {
        let section = |text: &str, link: &str| {
            format!(
                "\n<mj-section><mj-column><mj-text> {text} <a href='{link}'>x</a></mj-text></mj-column></mj-section>"
            )
        };
        let page = page(&format!("{}{}<mj-hero/>\n", section("one", "/1"), section("two", "/2")));
        let split = SplitPage::new(&page).expect("it can be split");
        assert_eq!(split.head.values, [SlotValue::Attribute("T")]);
        assert_eq!(split.shapes.len(), 2, "{:?}", split.shapes);
        let kinds: Vec<usize> = split.parts.iter().map(|(shape, _)| *shape).collect();
        assert_eq!(kinds, [0, 0, 1]);
        assert_eq!(
            split.parts[1].1,
            [SlotValue::Text("two"), SlotValue::Attribute("/2"), SlotValue::Text("x")]
        );
        assert_eq!(split.tail, "</mj-body></mjml>");
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
            assert_eq!(SplitPage::new(&page(body)), None, "{body}");
        }
        for head in [
            "<mj-style inline=\"inline\">a{}</mj-style>",
            "<mj-raw><mj-body><mj-section></mj-section></mj-body></mj-raw>",
            "<mj-attributes><mj-column width=\"200\"/></mj-attributes>",
        ] {
            let page = format!("<mjml><mj-head>{head}</mj-head><mj-body></mj-body></mjml>");
            assert_eq!(SplitPage::new(&page), None, "{head}");
        }
    }
}
