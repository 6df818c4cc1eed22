//! The SQL tokeniser: every byte of a text belongs to exactly one token.

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Spaces and line ends.
    Space,
    /// `-- …` or `/* … */`
    Comment,
    /// `'text'`; also PostgreSQL's `E'it\'s'` and `$tag$text$tag$`.
    Text,
    /// An identifier in quotes: `"a"`, `` `a` ``, `[a]`.
    Quoted,
    /// A keyword or a plain identifier.
    Word,
    /// `:name`
    Parameter,
    /// `;`
    Semicolon,
    /// `(`
    Open,
    /// `)`
    Close,
    /// Anything else.
    Other,
}

/// A token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    /// Its kind.
    pub kind: TokenKind,
    /// Its text, as written.
    pub text: &'a str,
    /// Its byte offset.
    pub at: usize,
}

/// All tokens of a text, in order. An unclosed token extends to the end.
pub fn tokens(sql: &str) -> impl Iterator<Item = Token<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = sql.get(at..).filter(|rest| !rest.is_empty())?;
        let (kind, length) = next(rest);
        let token = Token { kind, text: &rest[..length], at };
        at += length;
        Some(token)
    })
}

/// The kind and length of the first token of `rest`, which is not empty.
fn next(rest: &str) -> (TokenKind, usize) {
    let first = rest.chars().next().unwrap_or(' ');
    match first {
        '\'' => (TokenKind::Text, quoted(rest, '\'')),
        'e' | 'E' if rest[1..].starts_with('\'') => (TokenKind::Text, 1 + escaped(&rest[1..])),
        '"' | '`' => (TokenKind::Quoted, quoted(rest, first)),
        '$' => dollar(rest),
        '[' => bracketed(rest),
        '-' if rest.starts_with("--") => (TokenKind::Comment, length_until(rest, 2, "\n")),
        '/' if rest.starts_with("/*") => (TokenKind::Comment, length_until(rest, 2, "*/")),
        ':' => colon(rest),
        ';' => (TokenKind::Semicolon, 1),
        '(' => (TokenKind::Open, 1),
        ')' => (TokenKind::Close, 1),
        _ if first.is_whitespace() => (TokenKind::Space, length_while(rest, char::is_whitespace)),
        _ if begins_word(first) => (TokenKind::Word, length_while(rest, continues_word)),
        // Letters in a number (1e5, 0x1f) are no words.
        _ if first.is_ascii_digit() => (TokenKind::Other, length_while(rest, continues_word)),
        _ => (TokenKind::Other, first.len_utf8()),
    }
}

/// `:name`; but `::type` is PostgreSQL's cast.
fn colon(rest: &str) -> (TokenKind, usize) {
    let after = &rest[1..];
    match after.chars().next() {
        Some(':') => (TokenKind::Other, 2),
        Some(c) if begins_word(c) => (TokenKind::Parameter, 1 + length_while(after, continues_word)),
        _ => (TokenKind::Other, 1),
    }
}

/// `[name]`, unless it is an index or array: PostgreSQL's `a[1]` and `ARRAY['x', :y]`.
fn bracketed(rest: &str) -> (TokenKind, usize) {
    let inside = length_while(&rest[1..], |c| continues_word(c) || c == ' ' || c == '-');
    let is_name = rest[1..].starts_with(begins_word) && rest[1 + inside..].starts_with(']');
    if is_name { (TokenKind::Quoted, inside + 2) } else { (TokenKind::Other, 1) }
}

/// The length of a quoted token; a doubled quote stands for itself.
fn quoted(rest: &str, quote: char) -> usize {
    let mut at = 1;
    while let Some(found) = rest[at..].find(quote) {
        at += found + 1;
        if !rest[at..].starts_with(quote) {
            return at;
        }
        at += 1;
    }
    rest.len()
}

/// The length of a quoted text with backslash escapes.
fn escaped(rest: &str) -> usize {
    let mut at = 1;
    while let Some(found) = rest[at..].find(['\'', '\\']) {
        let is_quote = rest[at + found..].starts_with('\'');
        at += found + 1;
        match rest[at..].chars().next() {
            Some('\'') if is_quote => at += 1,
            _ if is_quote => return at,
            next => at += next.map_or(0, char::len_utf8),
        }
    }
    rest.len()
}

/// `$tag$ … $tag$`, if it is closed; other databases do not have this syntax.
fn dollar(rest: &str) -> (TokenKind, usize) {
    let tag = length_while(&rest[1..], |c| c.is_alphanumeric() || c == '_');
    let quote = rest.get(..tag + 2).filter(|quote| quote.ends_with('$'));
    let quote = quote.filter(|_| !rest[1..].starts_with(|c: char| c.is_ascii_digit()));
    match quote.and_then(|quote| rest[quote.len()..].find(quote).map(|at| at + 2 * quote.len())) {
        Some(length) => (TokenKind::Text, length),
        None => (TokenKind::Other, 1),
    }
}

fn length_until(rest: &str, from: usize, end: &str) -> usize {
    rest[from..].find(end).map_or(rest.len(), |found| from + found + end.len())
}

fn length_while(rest: &str, belongs: impl Fn(char) -> bool) -> usize {
    rest.find(|c| !belongs(c)).unwrap_or(rest.len())
}

fn begins_word(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn continues_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}
