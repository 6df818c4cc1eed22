//! The tokens of SQL: every byte of a text belongs to exactly one.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Spaces and line ends.
    Space,
    /// `-- …` or `/* … */`
    Comment,
    /// `'text'`; in PostgreSQL's ways also `E'it\'s'` and `$tag$text$tag$`.
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

/// A piece of SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    /// What it is.
    pub kind: TokenKind,
    /// It, as written.
    pub text: &'a str,
    /// Where it begins.
    pub at: usize,
}

/// All tokens of a text, in order. What is not closed goes on to the end.
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

/// The kind and length of the token that `rest`, which is not empty, begins with.
fn next(rest: &str) -> (TokenKind, usize) {
    let first = rest.chars().next().unwrap_or(' ');
    match first {
        '\'' => (TokenKind::Text, quoted(rest, '\'')),
        'e' | 'E' if rest[1..].starts_with('\'') => (TokenKind::Text, 1 + escaped(&rest[1..])),
        '"' | '`' => (TokenKind::Quoted, quoted(rest, first)),
        '$' => dollar(rest),
        '[' => bracketed(rest),
        '-' if rest.starts_with("--") => (TokenKind::Comment, until(rest, 2, "\n")),
        '/' if rest.starts_with("/*") => (TokenKind::Comment, until(rest, 2, "*/")),
        ':' => colon(rest),
        ';' => (TokenKind::Semicolon, 1),
        '(' => (TokenKind::Open, 1),
        ')' => (TokenKind::Close, 1),
        _ if first.is_whitespace() => (TokenKind::Space, run(rest, char::is_whitespace)),
        _ if begins_word(first) => (TokenKind::Word, run(rest, continues_word)),
        // A number's letters (1e5, 0x1f) are no words.
        _ if first.is_ascii_digit() => (TokenKind::Other, run(rest, continues_word)),
        _ => (TokenKind::Other, first.len_utf8()),
    }
}

/// `:name`; but `::type` is PostgreSQL's cast.
fn colon(rest: &str) -> (TokenKind, usize) {
    let after = &rest[1..];
    match after.chars().next() {
        Some(':') => (TokenKind::Other, 2),
        Some(c) if begins_word(c) => (TokenKind::Parameter, 1 + run(after, continues_word)),
        _ => (TokenKind::Other, 1),
    }
}

/// `[name]`, if it looks like one: PostgreSQL's `a[1]` and `ARRAY['x', :y]` are none.
fn bracketed(rest: &str) -> (TokenKind, usize) {
    let inside = run(&rest[1..], |c| continues_word(c) || c == ' ' || c == '-');
    let is_name = rest[1..].starts_with(begins_word) && rest[1 + inside..].starts_with(']');
    if is_name { (TokenKind::Quoted, inside + 2) } else { (TokenKind::Other, 1) }
}

/// The length of what is in quotes; a doubled quote stands for itself.
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

/// The length of text in quotes where a backslash takes the next character's meaning.
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

/// `$tag$ … $tag$`, if it is closed; other databases know no such thing.
fn dollar(rest: &str) -> (TokenKind, usize) {
    let tag = run(&rest[1..], |c| c.is_alphanumeric() || c == '_');
    let quote = rest.get(..tag + 2).filter(|quote| quote.ends_with('$'));
    let quote = quote.filter(|_| !rest[1..].starts_with(|c: char| c.is_ascii_digit()));
    match quote.and_then(|quote| rest[quote.len()..].find(quote).map(|at| at + 2 * quote.len())) {
        Some(length) => (TokenKind::Text, length),
        None => (TokenKind::Other, 1),
    }
}

fn until(rest: &str, from: usize, end: &str) -> usize {
    rest[from..].find(end).map_or(rest.len(), |found| from + found + end.len())
}

fn run(rest: &str, belongs: impl Fn(char) -> bool) -> usize {
    rest.find(|c| !belongs(c)).unwrap_or(rest.len())
}

fn begins_word(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn continues_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}
