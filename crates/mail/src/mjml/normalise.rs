//! MJML as the embedded renderer can take it.
//!
//! The renderer (mrml 6.0.1) prints attribute values the way Rust prints strings for programmers: a line
//! break in a style becomes a backslash and an n, a quote gets a backslash before it. It refuses what
//! every browser takes (attributes without quotes or values, tags in capitals, a lone `<`), and where a
//! thing is said twice it believes the other of the two. Here the same is said so that it cannot go wrong;
//! what cannot be said is refused, with its line.

use super::scan::{Attribute, Piece, What, scan};

/// A template without what would go wrong.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Normal {
    pub(super) text: String,
    /// The line of the template on which each line of the text begins.
    lines: Vec<usize>,
}

impl Normal {
    /// The template's line of a byte of the text.
    pub(super) fn line(&self, at: usize) -> usize {
        let end = self.text.floor_char_boundary(at.min(self.text.len()));
        let newlines = self.text[..end].bytes().filter(|byte| *byte == b'\n').count();
        self.line_of(newlines + 1)
    }

    /// The template's line of a line of the text; lines count from 1.
    pub(super) fn line_of(&self, line: usize) -> usize {
        self.lines.get(line.saturating_sub(1)).copied().unwrap_or(1)
    }
}

/// Why a template cannot be taken: a line and words.
pub(super) type Refusal = (usize, String);

/// What the renderer knows.
const COMPONENTS: [&str; 33] = [
    "mj-accordion",
    "mj-accordion-element",
    "mj-accordion-text",
    "mj-accordion-title",
    "mj-all",
    "mj-attributes",
    "mj-body",
    "mj-breakpoint",
    "mj-button",
    "mj-carousel",
    "mj-carousel-image",
    "mj-class",
    "mj-column",
    "mj-divider",
    "mj-font",
    "mj-group",
    "mj-head",
    "mj-hero",
    "mj-image",
    "mj-navbar",
    "mj-navbar-link",
    "mj-preview",
    "mj-raw",
    "mj-section",
    "mj-social",
    "mj-social-element",
    "mj-spacer",
    "mj-style",
    "mj-table",
    "mj-text",
    "mj-title",
    "mj-wrapper",
    "mjml",
];
/// What npm's mjml knows beside.
const ELSEWHERE: [&str; 3] = ["mj-html-attributes", "mj-selector", "mj-html-attribute"];
/// HTML that has no end tag.
const VOID: [&str; 13] = [
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track",
    "wbr",
];

/// Says a template so that the renderer takes it right.
pub(super) fn normalise(template: &str) -> Result<Normal, Refusal> {
    let pieces = scan(template)
        .map_err(|endless| (endless.line, format!("a {} that never ends", endless.what)))?;
    let mut normal = Normal { text: String::with_capacity(template.len()), lines: vec![1] };
    let mut open: Vec<(String, usize)> = Vec::new();
    for piece in &pieces {
        normal.add(piece, &mut open)?;
    }
    match open.pop() {
        Some((name, line)) => Err((line, format!("<{name}> is never closed"))),
        None => Ok(normal),
    }
}

impl Normal {
    fn add(&mut self, piece: &Piece<'_>, open: &mut Vec<(String, usize)>) -> Result<(), Refusal> {
        match &piece.what {
            // Outside of the document there may be nothing, not even a blank.
            What::Text if open.is_empty() && piece.raw.trim().is_empty() => {
                self.skip(piece);
            }
            What::Text if open.is_empty() => {
                return Err((piece.line, "there is text outside of <mjml>".to_owned()));
            }
            // The renderer puts a title into an attribute too.
            What::Text if open.last().is_some_and(|(name, _)| name == "mj-title") => {
                let mut text = String::with_capacity(piece.raw.len());
                value_into(piece.raw, &mut text);
                self.text(&text, piece.line);
            }
            What::Text => {
                let mut text = String::with_capacity(piece.raw.len());
                text_into(piece.raw, &mut text);
                self.text(&text, piece.line);
            }
            What::Sheet | What::Comment => self.text(piece.raw, piece.line),
            What::Prologue if open.is_empty() => self.skip(piece),
            What::Prologue => self.text(piece.raw, piece.line),
            What::Open { name, attributes, closed } => {
                let name = name.to_ascii_lowercase();
                known(&name, attributes).map_err(|what| (piece.line, what))?;
                self.begin(piece.line);
                self.tag(&name, attributes, *closed);
                if !closed && !VOID.contains(&&*name) {
                    open.push((name, piece.line));
                }
            }
            What::Close { name } => {
                let name = name.to_ascii_lowercase();
                self.close(&name, piece.line, open)?;
            }
        }
        Ok(())
    }

    fn close(
        &mut self,
        name: &str,
        line: usize,
        open: &mut Vec<(String, usize)>,
    ) -> Result<(), Refusal> {
        if VOID.contains(&name) {
            return Ok(());
        }
        match open.pop() {
            Some((inner, _)) if inner == name => {
                self.begin(line);
                self.text.push_str("</");
                self.text.push_str(name);
                self.text.push('>');
                Ok(())
            }
            Some((inner, from)) => {
                Err((from, format!("<{inner}> is not closed before </{name}> of line {line}")))
            }
            None => Err((line, format!("</{name}> closes nothing"))),
        }
    }

    /// The line that is begun belongs to whatever comes first on it.
    fn begin(&mut self, line: usize) {
        let begins = self.text.is_empty() || self.text.ends_with('\n');
        if let Some(last) = self.lines.last_mut().filter(|_| begins) {
            *last = line;
        }
    }

    fn skip(&mut self, piece: &Piece<'_>) {
        self.begin(piece.line + piece.raw.matches('\n').count());
    }

    fn text(&mut self, text: &str, line: usize) {
        self.begin(line);
        self.text.push_str(text);
        let newlines = text.bytes().filter(|byte| *byte == b'\n').count();
        self.lines.extend((1..=newlines).map(|n| line + n));
    }

    fn tag(&mut self, name: &str, attributes: &[Attribute<'_>], closed: bool) {
        self.text.push('<');
        self.text.push_str(name);
        for (at, attribute) in attributes.iter().enumerate() {
            // Of two of a name the first counts, as in HTML; the renderer would take the second.
            if attributes[..at].iter().any(|earlier| earlier.name == attribute.name) {
                continue;
            }
            self.text.push(' ');
            self.text.push_str(attribute.name);
            self.text.push_str("=\"");
            match attribute.name {
                // Of two classes the last counts; the renderer would take the first.
                "mj-class" => {
                    let classes: Vec<&str> = attribute.value.split_whitespace().rev().collect();
                    value_into(&classes.join(" "), &mut self.text);
                }
                _ => value_into(attribute.value, &mut self.text),
            }
            self.text.push('"');
        }
        self.text.push_str(if closed { " />" } else { ">" });
    }
}

/// Text between tags. The renderer's parser refuses `]]>` and what is no character of XML, and panics at a
/// `>` after some letters that are not ASCII.
pub(super) fn text_into(text: &str, into: &mut String) {
    for run in text.split_inclusive(is_odd) {
        // One at most, at its end.
        let plain = run.trim_end_matches(is_odd);
        into.push_str(plain);
        into.push_str(match &run[plain.len()..] {
            "" => "",
            "<" => "&lt;",
            ">" => "&gt;",
            // Blanks to everybody.
            "\u{b}" | "\u{c}" => " ",
            _ => "\u{fffd}",
        });
    }
}

fn is_odd(c: char) -> bool {
    matches!(c, '<' | '>' | '\u{fffe}' | '\u{ffff}')
        || (c < ' ' && !matches!(c, '\t' | '\n' | '\r'))
}

/// An attribute's value of which nothing is printed for programmers.
pub(super) fn value_into(text: &str, into: &mut String) {
    use std::fmt::Write;
    // Most are plain.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !b"<>\"\\".contains(&byte)) {
        into.push_str(text);
        return;
    }
    for c in text.chars() {
        match c {
            '\n' | '\t' | '\r' => into.push(' '),
            '<' => into.push_str("&lt;"),
            '>' => into.push_str("&gt;"),
            '\'' => into.push(c),
            c if c.escape_debug().len() > 1 => {
                // Writing into a string cannot fail.
                let _ = write!(into, "&#{};", u32::from(c));
            }
            c => into.push(c),
        }
    }
}

fn known(name: &str, attributes: &[Attribute<'_>]) -> Result<(), String> {
    let elsewhere = "the reference renderer has it, the embedded one does not";
    if ELSEWHERE.contains(&name) {
        return Err(format!("<{name}>: {elsewhere}"));
    }
    if name.starts_with("mj")
        && (name.starts_with("mj-") || name == "mjml")
        && !COMPONENTS.contains(&name)
    {
        return Err(format!("<{name}> is no component of MJML"));
    }
    let file_start = |one: &Attribute<'_>| one.name == "position" && one.value == "file-start";
    if name == "mj-raw" && attributes.iter().any(file_start) {
        return Err(format!("mj-raw at the file's start: {elsewhere}"));
    }
    // It leaves out the two cells that give such a hero its height.
    let fluid = |one: &Attribute<'_>| one.name == "mode" && one.value == "fluid-height";
    if name.starts_with("mj-") && attributes.iter().any(fluid) {
        return Err(format!("a hero of fluid height: {elsewhere}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        normalise(text).expect("it can be said").text
    }

    #[test]
    fn values_hold_nothing_that_would_be_printed_for_programmers() {
        assert_eq!(said("<a b=\"c\n\td\">x</a>"), "<a b=\"c  d\">x</a>");
        assert_eq!(
            said("<a b='say \"no\" \\ \u{200b}'>x</a>"),
            "<a b=\"say &#34;no&#34; &#92; &#8203;\">x</a>"
        );
        assert_eq!(said("<a b=\"d'été\">x</a>"), "<a b=\"d'été\">x</a>");
    }

    #[test]
    fn what_browsers_take_is_said_as_the_renderer_takes_it() {
        assert_eq!(
            said("<?xml?>\n<P Class=x nowrap>1 < 2</P>"),
            "<p Class=\"x\" nowrap=\"\">1 &lt; 2</p>"
        );
        assert_eq!(said("<p>a<br>b<img src=x></p>"), "<p>a<br>b<img src=\"x\"></p>");
    }

    #[test]
    fn what_is_said_twice_is_said_once() {
        assert_eq!(said("<a b=\"1\" b=\"2\">x</a>"), "<a b=\"1\">x</a>");
        assert_eq!(said("<a mj-class=\"one two\">x</a>"), "<a mj-class=\"two one\">x</a>");
    }

    #[test]
    fn lines_are_the_templates() {
        let normal = normalise("\n\n<mjml\n  a=\"b\n c\">\nx\n<i>y</i></mjml>").expect("fine");
        let line = |what: &str| normal.line(normal.text.find(what).expect("it is there"));
        assert_eq!((line("<mjml"), line("x"), line("<i>"), line("</mjml")), (3, 6, 7, 7));
    }

    #[test]
    fn what_cannot_be_said_is_refused_with_its_line() {
        let refused = |text: &str| normalise(text).expect_err("it is refused");
        assert_eq!(
            refused("<mjml>\n<mj-chart/></mjml>"),
            (2, "<mj-chart> is no component of MJML".into())
        );
        assert_eq!(
            refused("<mj-text>\n<p>one\n</mj-text>"),
            (2, "<p> is not closed before </mj-text> of line 3".into())
        );
        assert_eq!(refused("<i>x</i>\n</b>"), (2, "</b> closes nothing".into()));
        assert_eq!(refused("<mjml></mjml>hello").0, 1);
        assert!(refused("<mj-raw position=\"file-start\">x</mj-raw>").1.contains("reference"));
        assert!(refused("<mjml>\n<mj-html-attributes>").1.contains("reference"));
        assert!(refused("<mj-hero mode='fluid-height'></mj-hero>").1.contains("reference"));
        assert_eq!(refused("\n<mjml>"), (2, "<mjml> is never closed".into()));
    }
}
