//! Tokenises SQL; does not parse its grammar.
//!
//! Enough to list a statement's parameters, to split several statements, and to find an ORDER BY or
//! LIMIT that would clash with our own. Strings, quoted identifiers and comments are single tokens.
//! The database decides what a statement means.

mod tokens;

pub use tokens::{Token, TokenKind, tokens};

/// The parameters of a statement (`:name`), each once, in order, without the colon.
pub fn parameters(sql: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for token in tokens(sql).filter(|token| token.kind == TokenKind::Parameter) {
        let name = token.text.trim_start_matches(':');
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The tokens without spaces and comments.
pub fn significant_tokens(sql: &str) -> impl Iterator<Item = Token<'_>> {
    tokens(sql).filter(|token| !matches!(token.kind, TokenKind::Space | TokenKind::Comment))
}

/// The first keyword in capitals.
pub fn verb(sql: &str) -> Option<String> {
    let first = significant_tokens(sql).find(|token| token.kind != TokenKind::Open)?;
    (first.kind == TokenKind::Word).then(|| first.text.to_uppercase())
}

/// One of several statements in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SqlPart<'a> {
    /// The statement, without the semicolon after it and the space around it.
    pub sql: &'a str,
    /// Its byte offset in the whole text.
    pub at: usize,
}

/// The statements of a text. Parts with only spaces and comments are left out.
///
/// Bodies of triggers and procedures are not recognised: only the database can run such scripts.
pub fn split(sql: &str) -> Vec<SqlPart<'_>> {
    let parts = pieces(sql).into_iter().filter(|part| significant_tokens(part.sql).next().is_some());
    parts.map(trimmed).collect()
}

/// The texts between semicolons, unchanged: joined by `;` they are the whole text.
pub fn pieces(sql: &str) -> Vec<SqlPart<'_>> {
    let mut pieces = Vec::new();
    let mut from = 0;
    for token in tokens(sql).filter(|token| token.kind == TokenKind::Semicolon) {
        pieces.push(SqlPart { sql: &sql[from..token.at], at: from });
        from = token.at + token.text.len();
    }
    pieces.push(SqlPart { sql: &sql[from..], at: from });
    pieces
}

fn trimmed(part: SqlPart<'_>) -> SqlPart<'_> {
    let sql = part.sql.trim_start();
    SqlPart { at: part.at + part.sql.len() - sql.len(), sql: sql.trim_end() }
}

/// A clause that orders or limits rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clause {
    /// ORDER BY
    Order,
    /// LIMIT, OFFSET or FETCH FIRST
    Limit,
}

/// The first ORDER BY, LIMIT, OFFSET or FETCH outside of parentheses, and its offset.
pub fn closing_clause(sql: &str) -> Option<(Clause, usize)> {
    let mut depth = 0_usize;
    let mut rest = significant_tokens(sql).peekable();
    while let Some(token) = rest.next() {
        match token.kind {
            TokenKind::Open => depth += 1,
            TokenKind::Close => depth = depth.saturating_sub(1),
            TokenKind::Word if depth == 0 => {
                let next = rest.peek().map_or("", |next| next.text);
                if let Some(clause) = clause(token.text, next) {
                    return Some((clause, token.at));
                }
            }
            _ => {}
        }
    }
    None
}

fn clause(word: &str, next: &str) -> Option<Clause> {
    match word.to_uppercase().as_str() {
        "ORDER" if next.eq_ignore_ascii_case("BY") => Some(Clause::Order),
        "LIMIT" | "OFFSET" => Some(Clause::Limit),
        "FETCH" if next.eq_ignore_ascii_case("FIRST") || next.eq_ignore_ascii_case("NEXT") => {
            Some(Clause::Limit)
        }
        _ => None,
    }
}

/// What follows the first WHERE outside of parentheses.
pub fn condition(sql: &str) -> Option<&str> {
    let mut depth = 0_usize;
    for token in significant_tokens(sql) {
        match token.kind {
            TokenKind::Open => depth += 1,
            TokenKind::Close => depth = depth.saturating_sub(1),
            TokenKind::Word if depth == 0 && token.text.eq_ignore_ascii_case("WHERE") => {
                return Some(&sql[token.at + token.text.len()..]);
            }
            _ => {}
        }
    }
    None
}

/// The tables of a statement: the words after FROM, JOIN, INTO and UPDATE, as written. A guess, for
/// hints only.
pub fn tables(sql: &str) -> Vec<&str> {
    let mut tables = Vec::new();
    let mut before = String::new();
    for token in significant_tokens(sql) {
        let named = matches!(token.kind, TokenKind::Word | TokenKind::Quoted);
        if named && ["FROM", "JOIN", "INTO", "UPDATE"].contains(&before.as_str()) {
            tables.push(token.text);
        }
        before = token.text.to_uppercase();
    }
    tables
}

/// The line of a byte offset, from 0.
pub fn lines_before(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
}
