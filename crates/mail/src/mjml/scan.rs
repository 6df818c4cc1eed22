//! MJML cut into pieces: tags, text, and what is left alone.
//!
//! As lenient as browsers are: a lone `<` is text, attributes need neither quotes nor values. What cannot
//! be cut is a tag, a comment or a style that never ends.

/// A piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    /// What it is.
    pub(super) what: What<'a>,
    /// All of it, as it is written.
    pub(super) raw: &'a str,
    /// The line on which it begins, from 1.
    pub(super) line: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What<'a> {
    Text,
    /// The inside of a style or script.
    Sheet,
    Comment,
    /// `<?xml …?>`, `<!doctype …>`.
    Prologue,
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

/// What cannot be cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endless {
    pub(super) what: &'static str,
    pub(super) line: usize,
}

/// Whose inside is no markup.
const SHEETS: [&str; 3] = ["mj-style", "style", "script"];

/// Cuts a template into its pieces; put together again they are the template.
pub(super) fn scan(text: &str) -> Result<Vec<Piece<'_>>, Endless> {
    let mut scanner = Scanner { rest: text, line: 1, pieces: Vec::new() };
    while !scanner.rest.is_empty() {
        scanner.step()?;
    }
    Ok(scanner.pieces)
}

struct Scanner<'a> {
    rest: &'a str,
    line: usize,
    pieces: Vec<Piece<'a>>,
}

impl<'a> Scanner<'a> {
    fn step(&mut self) -> Result<(), Endless> {
        let rest = self.rest;
        let after = rest.as_bytes().get(1).copied().unwrap_or(b' ');
        match rest.as_bytes().first() {
            Some(b'<') if rest.starts_with("<!--") => self.until("-->", What::Comment, "comment"),
            Some(b'<') if after == b'!' => self.until(">", What::Prologue, "declaration"),
            Some(b'<') if after == b'?' => self.until("?>", What::Prologue, "declaration"),
            Some(b'<') if after == b'/' => self.close(),
            Some(b'<') if after.is_ascii_alphabetic() => self.open(),
            _ => {
                let begins =
                    |(at, _): &(usize, &str)| *at > 0 && begins_markup(&rest.as_bytes()[*at..]);
                let end = rest.match_indices('<').find(begins).map_or(rest.len(), |(at, _)| at);
                self.push(end, What::Text);
                Ok(())
            }
        }
    }

    fn push(&mut self, length: usize, what: What<'a>) {
        let (raw, rest) = self.rest.split_at(length);
        self.pieces.push(Piece { what, raw, line: self.line });
        self.line += raw.bytes().filter(|byte| *byte == b'\n').count();
        self.rest = rest;
    }

    fn until(&mut self, end: &str, what: What<'a>, name: &'static str) -> Result<(), Endless> {
        let at = self.rest.find(end).ok_or(Endless { what: name, line: self.line })?;
        self.push(at + end.len(), what);
        Ok(())
    }

    fn close(&mut self) -> Result<(), Endless> {
        let end = self.rest.find('>').ok_or(Endless { what: "tag", line: self.line })?;
        let name = self.rest[2..end].trim();
        self.push(end + 1, What::Close { name });
        Ok(())
    }

    fn open(&mut self) -> Result<(), Endless> {
        let (length, what) = tag(self.rest).ok_or(Endless { what: "tag", line: self.line })?;
        let sheet = match &what {
            What::Open { name, closed: false, .. } if is_sheet(name) => Some(*name),
            _ => None,
        };
        self.push(length, what);
        if let Some(name) = sheet {
            let end = end_of_sheet(self.rest, name);
            let end = end.ok_or(Endless { what: "style", line: self.line })?;
            self.push(end, What::Sheet);
        }
        Ok(())
    }
}

fn is_sheet(name: &str) -> bool {
    SHEETS.iter().any(|sheet| sheet.eq_ignore_ascii_case(name))
}

fn begins_markup(bytes: &[u8]) -> bool {
    matches!(bytes, [b'<', next, ..] if next.is_ascii_alphabetic() || b"/!?".contains(next))
}

fn end_of_sheet(rest: &str, name: &str) -> Option<usize> {
    let ends = |(at, _): &(usize, &str)| {
        rest.get(at + 2..at + 2 + name.len()).is_some_and(|word| word.eq_ignore_ascii_case(name))
    };
    rest.match_indices("</").find(ends).map(|(at, _)| at)
}

/// The length of the tag at the beginning of `text`, and what it says.
fn tag(text: &str) -> Option<(usize, What<'_>)> {
    let (name, mut rest) = word(&text[1..]);
    let mut attributes = Vec::new();
    loop {
        rest = rest.trim_start();
        let closed = rest.starts_with("/>");
        if closed || rest.starts_with('>') {
            let length = text.len() - rest.len() + if closed { 2 } else { 1 };
            return Some((length, What::Open { name, attributes, closed }));
        }
        if let Some(stray) = rest.strip_prefix(['/', '=', '"', '\'']) {
            rest = stray;
            continue;
        }
        let (attribute, after) = attribute(rest)?;
        attributes.push(attribute);
        rest = after;
    }
}

fn attribute(text: &str) -> Option<(Attribute<'_>, &str)> {
    let (name, rest) = word(text);
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

/// A name, and what comes after it.
fn word(text: &str) -> (&str, &str) {
    let ends = |c: char| c.is_whitespace() || ['=', '>', '/', '"', '\'', '<'].contains(&c);
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let show = |piece: &Piece<'_>| match &piece.what {
            What::Open { name, attributes, closed } => {
                let pair = |one: &Attribute<'_>| format!(" {}={}", one.name, one.value);
                let attributes: String = attributes.iter().map(pair).collect();
                format!("<{name}{attributes}{}", if *closed { "/" } else { "" })
            }
            What::Close { name } => format!("</{name}"),
            _ => format!("{:?} {}", piece.what, piece.raw),
        };
        scan(text).expect("it ends").iter().map(show).collect()
    }

    #[test]
    fn tags_text_and_comments_are_told_apart() {
        assert_eq!(
            words("<a b='c d' e=f g>1 < 2<!-- <x> --><br/></a>"),
            ["<a b=c d e=f g=", "Text 1 < 2", "Comment <!-- <x> -->", "<br/", "</a"]
        );
        assert_eq!(
            words("<!doctype html><?xml?><mj-style>a<b{}</mj-style>"),
            [
                "Prologue <!doctype html>",
                "Prologue <?xml?>",
                "<mj-style",
                "Sheet a<b{}",
                "</mj-style"
            ]
        );
    }

    #[test]
    fn a_value_may_hold_what_ends_tags_elsewhere() {
        assert_eq!(words("<a b=\"x > y\">"), ["<a b=x > y"]);
        assert_eq!(words("<a href=http://h/x>"), ["<a href=http://h/x"]);
    }

    #[test]
    fn what_never_ends_is_named_with_its_line() {
        for (text, what) in [
            ("\n<a b=\"c>", "tag"),
            ("\n<a", "tag"),
            ("\n</a", "tag"),
            ("\n<!-- a", "comment"),
            ("\n<mj-style>a", "style"),
        ] {
            assert_eq!(scan(text), Err(Endless { what, line: 2 }), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn pieces_put_together_are_the_template(text in "[<>/!?a-c=\"' \nß-]{0,60}") {
            if let Ok(pieces) = scan(&text) {
                let whole: String = pieces.iter().map(|piece| piece.raw).collect();
                proptest::prop_assert_eq!(whole, text);
            }
        }
    }
}
