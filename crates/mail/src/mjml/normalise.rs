//! Rewrites MJML so that mrml accepts and renders it correctly.
//!
//! mrml 6.0.1 prints attribute values with Rust's `Debug` escapes: a line break in a style becomes `\n`, a
//! quote gets a backslash. It rejects what every browser accepts (attributes without quotes or values, tags
//! in upper case, a lone `<`). For duplicate attributes and classes it picks the other one than npm's mjml
//! does. This module rewrites all of these; it rejects what mrml cannot render, with the line.

use super::lexer::{Attribute, MarkupKind, MarkupToken, tokenise};

/// A template rewritten for mrml.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NormalisedTemplate {
    pub(super) text: String,
    /// The template line that each line of `text` begins on.
    lines: Vec<usize>,
}

impl NormalisedTemplate {
    /// The template line of a byte offset in `text`.
    pub(super) fn line(&self, at: usize) -> usize {
        let end = self.text.floor_char_boundary(at.min(self.text.len()));
        let newlines = self.text[..end].bytes().filter(|byte| *byte == b'\n').count();
        self.line_of(newlines + 1)
    }

    /// The template line of a line in `text`; lines count from 1.
    pub(super) fn line_of(&self, line: usize) -> usize {
        self.lines.get(line.saturating_sub(1)).copied().unwrap_or(1)
    }
}

/// Why a template is rejected: a line and a message.
pub(super) type LineError = (usize, String);

/// The elements that mrml supports.
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
/// Elements that only npm's mjml supports.
const NPM_ONLY: [&str; 3] = ["mj-html-attributes", "mj-selector", "mj-html-attribute"];
/// HTML elements without an end tag.
const VOID_ELEMENTS: [&str; 13] =
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"];

/// Rewrites a template for mrml.
pub(super) fn normalise(template: &str) -> Result<NormalisedTemplate, LineError> {
    let tokens =
        tokenise(template).map_err(|error| (error.line, format!("a {} that never ends", error.of)))?;
    let mut normalised = NormalisedTemplate { text: String::with_capacity(template.len()), lines: vec![1] };
    let mut open: Vec<(String, usize)> = Vec::new();
    for token in &tokens {
        normalised.add(token, &mut open)?;
    }
    match open.pop() {
        Some((name, line)) => Err((line, format!("<{name}> is never closed"))),
        None => Ok(normalised),
    }
}

impl NormalisedTemplate {
    fn add(&mut self, token: &MarkupToken<'_>, open: &mut Vec<(String, usize)>) -> Result<(), LineError> {
        match &token.kind {
            // mrml rejects any text outside of the document, including white space.
            MarkupKind::Text if open.is_empty() && token.raw.trim().is_empty() => {
                self.skip(token);
            }
            MarkupKind::Text if open.is_empty() => {
                return Err((token.line, "there is text outside of <mjml>".to_owned()));
            }
            // mrml also puts the title into an attribute.
            MarkupKind::Text if open.last().is_some_and(|(name, _)| name == "mj-title") => {
                let mut text = String::with_capacity(token.raw.len());
                push_escaped_value(token.raw, &mut text);
                self.text(&text, token.line);
            }
            MarkupKind::Text => {
                let mut text = String::with_capacity(token.raw.len());
                push_escaped_text(token.raw, &mut text);
                self.text(&text, token.line);
            }
            MarkupKind::RawText | MarkupKind::Comment => self.text(token.raw, token.line),
            MarkupKind::Declaration if open.is_empty() => self.skip(token),
            MarkupKind::Declaration => self.text(token.raw, token.line),
            MarkupKind::Open { name, attributes, closed } => {
                let name = name.to_ascii_lowercase();
                check_supported(&name, attributes).map_err(|what| (token.line, what))?;
                self.begin(token.line);
                self.tag(&name, attributes, *closed);
                if !closed && !VOID_ELEMENTS.contains(&&*name) {
                    open.push((name, token.line));
                }
            }
            MarkupKind::Close { name } => {
                let name = name.to_ascii_lowercase();
                self.close(&name, token.line, open)?;
            }
        }
        Ok(())
    }

    fn close(&mut self, name: &str, line: usize, open: &mut Vec<(String, usize)>) -> Result<(), LineError> {
        if VOID_ELEMENTS.contains(&name) {
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

    /// Assigns the current output line to the template line of its first content.
    fn begin(&mut self, line: usize) {
        let begins = self.text.is_empty() || self.text.ends_with('\n');
        if let Some(last) = self.lines.last_mut().filter(|_| begins) {
            *last = line;
        }
    }

    fn skip(&mut self, token: &MarkupToken<'_>) {
        self.begin(token.line + token.raw.matches('\n').count());
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
            // For duplicate attributes the first wins, as in HTML; mrml takes the second.
            if attributes[..at].iter().any(|earlier| earlier.name == attribute.name) {
                continue;
            }
            self.text.push(' ');
            self.text.push_str(attribute.name);
            self.text.push_str("=\"");
            match attribute.name {
                // For conflicting classes the last wins; mrml takes the first.
                "mj-class" => {
                    let classes: Vec<&str> = attribute.value.split_whitespace().rev().collect();
                    push_escaped_value(&classes.join(" "), &mut self.text);
                }
                _ => push_escaped_value(attribute.value, &mut self.text),
            }
            self.text.push('"');
        }
        self.text.push_str(if closed { " />" } else { ">" });
    }
}

/// Escapes text between tags. mrml's parser rejects `]]>` and non-XML characters, and panics at a `>` after
/// some non-ASCII letters.
pub(super) fn push_escaped_text(text: &str, into: &mut String) {
    for run in text.split_inclusive(needs_escape) {
        // A run has at most one such character, at its end.
        let plain = run.trim_end_matches(needs_escape);
        into.push_str(plain);
        into.push_str(match &run[plain.len()..] {
            "" => "",
            "<" => "&lt;",
            ">" => "&gt;",
            // White space in HTML.
            "\u{b}" | "\u{c}" => " ",
            _ => "\u{fffd}",
        });
    }
}

fn needs_escape(c: char) -> bool {
    matches!(c, '<' | '>' | '\u{fffe}' | '\u{ffff}') || (c < ' ' && !matches!(c, '\t' | '\n' | '\r'))
}

/// Escapes an attribute value so that `Debug` formatting does not change it.
pub(super) fn push_escaped_value(text: &str, into: &mut String) {
    use std::fmt::Write;
    // Fast path: most values are plain ASCII.
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

fn check_supported(name: &str, attributes: &[Attribute<'_>]) -> Result<(), String> {
    let npm_only = "the reference renderer supports it, the embedded one does not";
    if NPM_ONLY.contains(&name) {
        return Err(format!("<{name}>: {npm_only}"));
    }
    if name.starts_with("mj") && (name.starts_with("mj-") || name == "mjml") && !COMPONENTS.contains(&name) {
        return Err(format!("<{name}> is no component of MJML"));
    }
    let file_start = |one: &Attribute<'_>| one.name == "position" && one.value == "file-start";
    if name == "mj-raw" && attributes.iter().any(file_start) {
        return Err(format!("mj-raw at the file's start: {npm_only}"));
    }
    // mrml omits the two table cells that give such a hero its height.
    let fluid = |one: &Attribute<'_>| one.name == "mode" && one.value == "fluid-height";
    if name.starts_with("mj-") && attributes.iter().any(fluid) {
        return Err(format!("a hero of fluid height: {npm_only}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalised_text(text: &str) -> String {
        normalise(text).expect("it is valid").text
    }

    #[test]
    fn values_hold_nothing_that_would_be_printed_for_programmers() {
        assert_eq!(normalised_text("<a b=\"c\n\td\">x</a>"), "<a b=\"c  d\">x</a>");
        assert_eq!(
            normalised_text("<a b='say \"no\" \\ \u{200b}'>x</a>"),
            "<a b=\"say &#34;no&#34; &#92; &#8203;\">x</a>"
        );
        assert_eq!(normalised_text("<a b=\"d'été\">x</a>"), "<a b=\"d'été\">x</a>");
    }

    #[test]
    fn what_browsers_take_is_said_as_the_renderer_takes_it() {
        assert_eq!(
            normalised_text("<?xml?>\n<P Class=x nowrap>1 < 2</P>"),
            "<p Class=\"x\" nowrap=\"\">1 &lt; 2</p>"
        );
        assert_eq!(normalised_text("<p>a<br>b<img src=x></p>"), "<p>a<br>b<img src=\"x\"></p>");
    }

    #[test]
    fn what_is_said_twice_is_said_once() {
        assert_eq!(normalised_text("<a b=\"1\" b=\"2\">x</a>"), "<a b=\"1\">x</a>");
        assert_eq!(normalised_text("<a mj-class=\"one two\">x</a>"), "<a mj-class=\"two one\">x</a>");
    }

    #[test]
    fn lines_are_the_templates() {
        let normalised = normalise("\n\n<mjml\n  a=\"b\n c\">\nx\n<i>y</i></mjml>").expect("fine");
        let line = |what: &str| normalised.line(normalised.text.find(what).expect("it is there"));
        assert_eq!((line("<mjml"), line("x"), line("<i>"), line("</mjml")), (3, 6, 7, 7));
    }

    #[test]
    fn what_cannot_be_said_is_refused_with_its_line() {
        let refused = |text: &str| normalise(text).expect_err("it is refused");
        assert_eq!(refused("<mjml>\n<mj-chart/></mjml>"), (2, "<mj-chart> is no component of MJML".into()));
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
