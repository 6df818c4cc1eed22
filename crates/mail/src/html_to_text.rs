//! Derives the plain-text part of a message from its HTML.

use std::borrow::Cow;

/// Elements with content that is skipped.
const SKIPPED_ELEMENTS: [&str; 4] = ["head", "style", "script", "title"];
/// Elements that start a new line.
const BLOCK_ELEMENTS: [&str; 17] = [
    "p",
    "div",
    "tr",
    "table",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "ul",
    "ol",
    "li",
    "blockquote",
    "section",
    "hr",
    "pre",
];

/// Converts HTML to text: paragraphs and lines, links with their URLs, images with their `alt` text.
///
/// ```
/// let html = "<h1>Hello</h1><p>See <a href=\"https://example.org\">the page</a> &amp; more</p>";
/// assert_eq!(longshore_mail::html_to_text(html), "Hello\n\nSee the page (https://example.org) & more\n");
/// ```
pub fn html_to_text(html: &str) -> String {
    let mut builder = TextBuilder::default();
    let mut rest = html;
    while let Some(at) = builder.next_tag(rest) {
        builder.text(&rest[..at]);
        rest = &rest[at..];
        let (end, after) = match rest.starts_with("<!--") {
            true => (rest.find("-->").map(|end| end + 3), ""),
            false => (tag_end(rest), &rest[1..]),
        };
        let Some(end) = end else { break };
        if !after.is_empty() {
            builder.tag(&rest[1..end - 1]);
        }
        rest = &rest[end..];
    }
    builder.text(rest);
    builder.finish()
}

/// The position after the first `>` outside of quotes.
fn tag_end(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        at += memchr::memchr3(b'>', b'"', b'\'', &bytes[at..])?;
        match bytes[at] {
            b'>' => return Some(at + 1),
            quote => at += memchr::memchr(quote, &bytes[at + 1..])? + 2,
        }
    }
}

#[derive(Default)]
struct TextBuilder {
    lines: Vec<String>,
    line: String,
    /// The skipped element that the parser is inside of, if any.
    skipped: Option<String>,
    links: Vec<(String, usize)>,
}

impl TextBuilder {
    /// The position of the next relevant tag. A lone `<` is text.
    fn next_tag(&self, text: &str) -> Option<usize> {
        let is_relevant = |at: &usize| match (&self.skipped, text.as_bytes().get(at + 1)) {
            (Some(name), Some(b'/')) => {
                let end = text.get(at + 2..at + 2 + name.len());
                end.is_some_and(|end| end.eq_ignore_ascii_case(name))
            }
            (None, Some(next)) => next.is_ascii_alphabetic() || b"/!?".contains(next),
            _ => false,
        };
        text.match_indices('<').map(|(at, _)| at).find(is_relevant)
    }

    fn text(&mut self, text: &str) {
        if self.skipped.is_some() {
            return;
        }
        let text = decode_entities(text);
        if text.starts_with(char::is_whitespace) {
            self.space();
        }
        for (n, word) in text.split_whitespace().enumerate() {
            if n > 0 {
                self.space();
            }
            self.line.push_str(word);
        }
        if text.ends_with(char::is_whitespace) {
            self.space();
        }
    }

    fn space(&mut self) {
        if !self.line.is_empty() && !self.line.ends_with(' ') {
            self.line.push(' ');
        }
    }

    fn tag(&mut self, tag: &str) {
        let closing = tag.starts_with('/');
        let name = tag.trim_start_matches('/').split([' ', '\n', '\t', '\r', '/']).next();
        let name = lowercase(name.unwrap_or_default());
        // Inside a skipped element, only its own end tag is recognised.
        if self.skipped.take().is_some() {
            return;
        }
        match &*name {
            skipped if SKIPPED_ELEMENTS.contains(&skipped) && !closing => {
                self.skipped = Some(name.into_owned());
            }
            "br" => self.end_line(),
            "td" | "th" => self.space(),
            "li" if !closing => {
                self.end_line();
                self.line.push_str("- ");
            }
            "a" if closing => self.end_link(),
            "a" => {
                // Adjacent links may have no white space between them in the source.
                if self.line.ends_with(')') {
                    self.space();
                }
                let url = attribute(tag, "href").unwrap_or_default();
                self.links.push((url, self.line.len()));
            }
            "img" => {
                let words = attribute(tag, "alt").unwrap_or_default();
                self.text(&words);
            }
            "p" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.end_line();
                self.lines.push(String::new());
            }
            block if BLOCK_ELEMENTS.contains(&block) => self.end_line(),
            _ => {}
        }
    }

    fn end_link(&mut self) {
        let Some((url, from)) = self.links.pop() else { return };
        let words = self.line.get(from..).unwrap_or_default().trim();
        let is_external = ["http://", "https://", "mailto:"].iter().any(|kind| url.starts_with(kind));
        if !is_external || words == url || url.strip_prefix("mailto:") == Some(words) {
            return;
        }
        let addition = if words.is_empty() { url } else { format!(" ({url})") };
        let length = self.line.trim_end().len();
        self.line.truncate(length);
        self.line.push_str(&addition);
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = line.trim_end();
        if !line.is_empty() && line != "-" {
            self.lines.push(line.to_owned());
        }
        for (_, from) in &mut self.links {
            *from = 0;
        }
    }

    /// Joins the lines, with at most one empty line between paragraphs and none at the start or end.
    fn finish(mut self) -> String {
        self.end_line();
        let mut text = String::new();
        for line in self.lines {
            if line.is_empty() && (text.is_empty() || text.ends_with("\n\n")) {
                continue;
            }
            text.push_str(&line);
            text.push('\n');
        }
        let length = text.trim_end().len();
        text.truncate(length);
        text.push('\n');
        text
    }
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let lower = tag.to_ascii_lowercase();
    let at = lower.match_indices(name).map(|(at, _)| at).find(|at| {
        lower[..*at].ends_with(char::is_whitespace) && lower[at + name.len()..].trim_start().starts_with('=')
    })?;
    let value = tag[at + name.len()..].trim_start().strip_prefix('=')?.trim_start();
    let value = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => value[1..].split(quote).next(),
        _ => value.split_whitespace().next(),
    };
    value.map(|value| decode_entities(value).into_owned())
}

/// Avoids an allocation: tag names are nearly always lower case.
fn lowercase(name: &str) -> Cow<'_, str> {
    match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(name.to_ascii_lowercase()),
        false => Cow::Borrowed(name),
    }
}

/// Decodes the entities that are common in mail; others stay as they are.
fn decode_entities(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.bytes().take(11).position(|byte| byte == b';');
        let entity = end.and_then(|end| Some((end, entity(&rest[1..end])?)));
        match entity {
            Some((end, c)) => {
                out.extend(c);
                rest = &rest[end + 1..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// `Some` for a known entity, with `None` inside for invisible characters.
fn entity(name: &str) -> Option<Option<char>> {
    let c = match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "copy" => '©',
        "reg" => '®',
        "ndash" => '–',
        "mdash" => '—',
        "hellip" => '…',
        "euro" => '€',
        "pound" => '£',
        "zwnj" | "zwj" | "shy" => return Some(None),
        _ => {
            let number = name.strip_prefix('#')?;
            let number = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => number.parse(),
            };
            return Some(char::from_u32(number.ok()?).filter(|c| !('\u{200b}'..='\u{200f}').contains(c)));
        }
    };
    Some(Some(c))
}

#[cfg(test)]
mod tests {
    use super::html_to_text;

    #[test]
    fn paragraphs_lines_and_lists_stay_what_they_are() {
        let html = "<html><head><title>x</title><style>p{}</style></head><body>\n<h1> Two  words </h1>\
<p>one<br>two</p><ul><li>a</li><li><b>b</b></li></ul><table><tr><td>1</td><td>2</td></tr></table></body></html>";
        assert_eq!(html_to_text(html), "Two words\n\none\ntwo\n\n- a\n- b\n1 2\n");
    }

    #[test]
    fn links_have_their_addresses_and_pictures_their_words() {
        let html = "<a href='https://e.org/?a=1&amp;b=2'><img src=x alt=\"the > shop\"></a> \
<a href=\"mailto:a@e.org\">a@e.org</a> <a href=\"#top\">top</a> <a href=\"https://e.org\">https://e.org</a>";
        assert_eq!(html_to_text(html), "the > shop (https://e.org/?a=1&b=2) a@e.org top https://e.org\n");
    }

    #[test]
    fn a_row_of_links_is_readable() {
        let html = "<a href=\"https://e.org/1\">one</a><a href=\"https://e.org/2\">two</a>";
        assert_eq!(html_to_text(html), "one (https://e.org/1) two (https://e.org/2)\n");
    }

    #[test]
    fn what_is_not_to_be_seen_is_not_told() {
        let html =
            "a<!-- <p>no</p> --><script>if (a < b) {}</script>b&zwnj;&#8203;&nbsp;c &amp;lt; &unknown; R&D";
        assert_eq!(html_to_text(html), "ab c &lt; &unknown; R&D\n");
    }

    proptest::proptest! {
        #[test]
        fn no_page_is_too_odd(html in "[<>/a-z\"'&;# =!-äp\n]{0,80}") {
            proptest::prop_assert!(html_to_text(&html).ends_with('\n'));
        }
    }
}
