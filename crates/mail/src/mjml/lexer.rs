//! Splits MJML into tokens: tags, text, comments, raw text.
//!
//! As lenient as browsers: a lone `<` is text; attributes need neither quotes nor values. The only errors are
//! a tag, a comment or a style without its end.

/// A token of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MarkupToken<'a> {
    /// Its kind.
    pub(super) kind: MarkupKind<'a>,
    /// Its source text.
    pub(super) raw: &'a str,
    /// The line it begins on, from 1.
    pub(super) line: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MarkupKind<'a> {
    Text,
    /// The content of a style or script element.
    RawText,
    Comment,
    /// `<?xml …?>`, `<!doctype …>`.
    Declaration,
    Open {
        name: &'a str,
        attributes: Vec<Attribute<'a>>,
        closed: bool,
    },
    Close {
        name: &'a str,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attribute<'a> {
    pub(super) name: &'a str,
    pub(super) value: &'a str,
}

/// A tag, comment or style without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MissingEnd {
    pub(super) of: &'static str,
    pub(super) line: usize,
}

/// Elements with raw text content.
const RAW_TEXT_ELEMENTS: [&str; 3] = ["mj-style", "style", "script"];

/// Splits a template into tokens; concatenated, their `raw` texts are the template.
pub(super) fn tokenise(text: &str) -> Result<Vec<MarkupToken<'_>>, MissingEnd> {
    let mut lexer = Lexer { rest: text, line: 1, tokens: Vec::new() };
    while !lexer.rest.is_empty() {
        lexer.next_token()?;
    }
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    tokens: Vec<MarkupToken<'a>>,
}

impl<'a> Lexer<'a> {
    fn next_token(&mut self) -> Result<(), MissingEnd> {
        let rest = self.rest;
        let after = rest.as_bytes().get(1).copied().unwrap_or(b' ');
        match rest.as_bytes().first() {
            Some(b'<') if rest.starts_with("<!--") => self.until("-->", MarkupKind::Comment, "comment"),
            Some(b'<') if after == b'!' => self.until(">", MarkupKind::Declaration, "declaration"),
            Some(b'<') if after == b'?' => self.until("?>", MarkupKind::Declaration, "declaration"),
            Some(b'<') if after == b'/' => self.close(),
            Some(b'<') if after.is_ascii_alphabetic() => self.open(),
            _ => {
                let begins = |(at, _): &(usize, &str)| *at > 0 && begins_markup(&rest.as_bytes()[*at..]);
                let end = rest.match_indices('<').find(begins).map_or(rest.len(), |(at, _)| at);
                self.push(end, MarkupKind::Text);
                Ok(())
            }
        }
    }

    fn push(&mut self, length: usize, kind: MarkupKind<'a>) {
        let (raw, rest) = self.rest.split_at(length);
        self.tokens.push(MarkupToken { kind, raw, line: self.line });
        self.line += raw.bytes().filter(|byte| *byte == b'\n').count();
        self.rest = rest;
    }

    fn until(&mut self, end: &str, kind: MarkupKind<'a>, name: &'static str) -> Result<(), MissingEnd> {
        let at = self.rest.find(end).ok_or(MissingEnd { of: name, line: self.line })?;
        self.push(at + end.len(), kind);
        Ok(())
    }

    fn close(&mut self) -> Result<(), MissingEnd> {
        let end = self.rest.find('>').ok_or(MissingEnd { of: "tag", line: self.line })?;
        let name = self.rest[2..end].trim();
        self.push(end + 1, MarkupKind::Close { name });
        Ok(())
    }

    fn open(&mut self) -> Result<(), MissingEnd> {
        let (length, kind) = tag(self.rest).ok_or(MissingEnd { of: "tag", line: self.line })?;
        let element = match &kind {
            MarkupKind::Open { name, closed: false, .. } if is_raw_text(name) => Some(*name),
            _ => None,
        };
        self.push(length, kind);
        if let Some(name) = element {
            let end = raw_text_end(self.rest, name);
            let end = end.ok_or(MissingEnd { of: "style", line: self.line })?;
            self.push(end, MarkupKind::RawText);
        }
        Ok(())
    }
}

fn is_raw_text(name: &str) -> bool {
    RAW_TEXT_ELEMENTS.iter().any(|element| element.eq_ignore_ascii_case(name))
}

fn begins_markup(bytes: &[u8]) -> bool {
    matches!(bytes, [b'<', next, ..] if next.is_ascii_alphabetic() || b"/!?".contains(next))
}

fn raw_text_end(rest: &str, name: &str) -> Option<usize> {
    let ends = |(at, _): &(usize, &str)| {
        rest.get(at + 2..at + 2 + name.len()).is_some_and(|word| word.eq_ignore_ascii_case(name))
    };
    rest.match_indices("</").find(ends).map(|(at, _)| at)
}

/// Parses the tag at the beginning of `text`; returns its length and kind.
fn tag(text: &str) -> Option<(usize, MarkupKind<'_>)> {
    let (name, mut rest) = split_name(&text[1..]);
    let mut attributes = Vec::new();
    loop {
        rest = rest.trim_start();
        let closed = rest.starts_with("/>");
        if closed || rest.starts_with('>') {
            let length = text.len() - rest.len() + if closed { 2 } else { 1 };
            return Some((length, MarkupKind::Open { name, attributes, closed }));
        }
        if let Some(rest_of_tag) = rest.strip_prefix(['/', '=', '"', '\'']) {
            rest = rest_of_tag;
            continue;
        }
        let (attribute, after) = attribute(rest)?;
        attributes.push(attribute);
        rest = after;
    }
}

fn attribute(text: &str) -> Option<(Attribute<'_>, &str)> {
    let (name, rest) = split_name(text);
    if name.is_empty() {
        return None;
    }
    let Some(value) = rest.trim_start().strip_prefix('=') else {
        return Some((Attribute { name, value: "" }, rest));
    };
    let value = value.trim_start();
    let quote = value.chars().next().filter(|first| ['"', '\''].contains(first));
    let (value, rest) = match quote {
        Some(quote) => value[1..].split_once(quote)?,
        None => value.split_at(value.find([' ', '\n', '\t', '\r', '>'])?),
    };
    Some((Attribute { name, value }, rest))
}

/// Splits a name off the beginning of `text`.
fn split_name(text: &str) -> (&str, &str) {
    let ends = |c: char| c.is_whitespace() || ['=', '>', '/', '"', '\'', '<'].contains(&c);
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(text: &str) -> Vec<String> {
        let show_token = |token: &MarkupToken<'_>| match &token.kind {
            MarkupKind::Open { name, attributes, closed } => {
                let pair = |one: &Attribute<'_>| format!(" {}={}", one.name, one.value);
                let attributes: String = attributes.iter().map(pair).collect();
                format!("<{name}{attributes}{}", if *closed { "/" } else { "" })
            }
            MarkupKind::Close { name } => format!("</{name}"),
            _ => format!("{:?} {}", token.kind, token.raw),
        };
        tokenise(text).expect("it ends").iter().map(show_token).collect()
    }

    #[test]
    fn tags_text_and_comments_are_told_apart() {
        assert_eq!(
            show("<a b='c d' e=f g>1 < 2<!-- <x> --><br/></a>"),
            ["<a b=c d e=f g=", "Text 1 < 2", "Comment <!-- <x> -->", "<br/", "</a"]
        );
        assert_eq!(
            show("<!doctype html><?xml?><mj-style>a<b{}</mj-style>"),
            [
                "Declaration <!doctype html>",
                "Declaration <?xml?>",
                "<mj-style",
                "RawText a<b{}",
                "</mj-style"
            ]
        );
    }

    #[test]
    fn a_value_may_hold_what_ends_tags_elsewhere() {
        assert_eq!(show("<a b=\"x > y\">"), ["<a b=x > y"]);
        assert_eq!(show("<a href=http://h/x>"), ["<a href=http://h/x"]);
    }

    #[test]
    fn what_never_ends_is_named_with_its_line() {
        for (text, of) in [
            ("\n<a b=\"c>", "tag"),
            ("\n<a", "tag"),
            ("\n</a", "tag"),
            ("\n<!-- a", "comment"),
            ("\n<mj-style>a", "style"),
        ] {
            assert_eq!(tokenise(text), Err(MissingEnd { of, line: 2 }), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn pieces_put_together_are_the_template(text in "[<>/!?a-c=\"' \nß-]{0,60}") {
            if let Ok(tokens) = tokenise(&text) {
                let whole: String = tokens.iter().map(|token| token.raw).collect();
                proptest::prop_assert_eq!(whole, text);
            }
        }
    }
}
