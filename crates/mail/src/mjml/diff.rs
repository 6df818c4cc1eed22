//! Compares two renderings of one template.
//!
//! White space, comments, the order of attributes, classes and style declarations, colour notation, and
//! fractions beyond two digits are ignored. Tags and texts are counted; what one page has more often than the
//! other is reported.

use std::collections::BTreeMap;

use super::lexer::{Attribute, MarkupKind, tokenise};

/// A tag or text that one page has more often than the other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The tag or text.
    pub text: String,
    /// How many more the second page has; negative if the first has more.
    pub excess: i64,
}

/// All differences, the largest first; empty if the pages are equivalent.
pub fn differences(first: &str, second: &str) -> Vec<Difference> {
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    for (page, sign) in [(first, -1), (second, 1)] {
        for one in parts(page) {
            *counts.entry(one).or_default() += sign;
        }
    }
    let differs = counts.into_iter().filter(|(_, more)| *more != 0);
    let mut all: Vec<_> = differs.map(|(what, more)| Difference { text: what, excess: more }).collect();
    all.sort_by_key(|one| (std::cmp::Reverse(one.excess.abs()), one.text.clone()));
    all
}

fn parts(page: &str) -> Vec<String> {
    // A page that cannot be tokenised counts as one part and differs from every other.
    let Ok(tokens) = tokenise(page) else { return vec![page.to_owned()] };
    let part = |what: &MarkupKind<'_>, raw: &str| match what {
        MarkupKind::Open { name, attributes, .. } => Some(tag(name, attributes)),
        MarkupKind::Text => Some(collapse_spaces(raw)).filter(|words| !words.is_empty()),
        MarkupKind::RawText => Some(minify(raw)).filter(|sheet| !sheet.is_empty()),
        MarkupKind::Close { .. } | MarkupKind::Comment | MarkupKind::Declaration => None,
    };
    tokens.iter().filter_map(|token| part(&token.kind, token.raw)).collect()
}

fn tag(name: &str, attributes: &[Attribute<'_>]) -> String {
    let mut pairs: Vec<String> = attributes.iter().filter_map(attribute_pair).collect();
    pairs.sort_unstable();
    std::iter::once(name.to_ascii_lowercase()).chain(pairs).collect::<Vec<_>>().join(" ")
}

fn attribute_pair(attribute: &Attribute<'_>) -> Option<String> {
    let value = attribute.value;
    let value = match attribute.name {
        "style" => style(value),
        "class" => {
            let mut classes: Vec<&str> = value.split_whitespace().collect();
            classes.sort_unstable();
            classes.join(" ")
        }
        _ => value.trim().to_owned(),
    };
    (!value.is_empty()).then(|| format!("{}=\"{}\"", attribute.name, normalise_values(&value)))
}

fn collapse_spaces(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A style sheet without insignificant white space.
fn minify(sheet: &str) -> String {
    let mut minified = collapse_spaces(sheet);
    for mark in ["{", "}", ":", ";", ","] {
        minified = minified.replace(&format!(" {mark}"), mark).replace(&format!("{mark} "), mark);
    }
    normalise_values(&minified.replace(";}", "}"))
}

/// Expands short colours and cuts fractions to two digits, also in class names derived from them.
fn normalise_values(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['#', '.', '-']) {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let mark = &after[..1];
        let word_end = |word: &str, is: fn(&char) -> bool| word.chars().take_while(is).count();
        out.push_str(mark);
        rest = &after[1..];
        if mark == "#" {
            let digits = word_end(rest, char::is_ascii_hexdigit);
            if digits == 3 {
                rest[..3].chars().for_each(|c| out.extend([c, c]));
                rest = &rest[3..];
            }
        } else if before.ends_with(|c: char| c.is_ascii_digit()) {
            let digits = word_end(rest, char::is_ascii_digit);
            out.push_str(&rest[..digits.min(2)]);
            rest = &rest[digits..];
        }
    }
    out + rest
}

fn style(value: &str) -> String {
    let tidy = |part: &str| collapse_spaces(part).replace(": ", ":");
    let mut parts: Vec<String> = value.split(';').map(tidy).filter(|part| !part.is_empty()).collect();
    parts.sort_unstable();
    parts.join(";")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_nothing_does_not_differ() {
        let one = "<!-- x --><P class=\"a  b\" style=\"color: red; top:0\">hello\n world</P>";
        let two = "<p style='top: 0;color:red;' class='a b'>hello world<!-- y --></p>";
        assert_eq!(differences(one, two), []);
        let one = "<style>a , b { width:33.333332% }</style><i class='b c-33-333332' style='color:#fff'>";
        let two = "<style>a,b{ width: 33.3333333%; }</style><i class='c-33-33333 b' style='color:#ffffff'>";
        assert_eq!(differences(one, two), []);
        assert_ne!(differences("<i style='width:33px'>", "<i style='width:34px'>"), []);
    }

    #[test]
    fn what_one_has_and_the_other_has_not_is_listed() {
        let differences = differences("<p>a</p><p>b</p>", "<p>a</p><i>b</i>");
        let listed: Vec<_> = differences.iter().map(|one| (one.text.as_str(), one.excess)).collect();
        assert_eq!(listed, [("i", 1), ("p", -1)]);
    }
}
