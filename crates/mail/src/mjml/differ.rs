//! What differs between two renderings of one template.
//!
//! Not a comparison of texts: blanks, comments, the order of attributes, of classes and of a style's parts,
//! how a colour is written, and a hundredth of a point mean nothing. Tags and words are counted, and what one page has more often than the other is listed.

use std::collections::BTreeMap;

use super::scan::{Attribute, What, scan};

/// Something that one page has and the other has not, or less often.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The tag or the words.
    pub what: String,
    /// How much more often the second page has it; below zero, the first.
    pub more: i64,
}

/// What differs, most important first: none is the same page.
pub fn differences(first: &str, second: &str) -> Vec<Difference> {
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    for (page, sign) in [(first, -1), (second, 1)] {
        for one in parts(page) {
            *counts.entry(one).or_default() += sign;
        }
    }
    let differs = counts.into_iter().filter(|(_, more)| *more != 0);
    let mut all: Vec<_> = differs.map(|(what, more)| Difference { what, more }).collect();
    all.sort_by_key(|one| (std::cmp::Reverse(one.more.abs()), one.what.clone()));
    all
}

fn parts(page: &str) -> Vec<String> {
    // A page that cannot be cut is one part, and differs from every other.
    let Ok(pieces) = scan(page) else { return vec![page.to_owned()] };
    let part = |what: &What<'_>, raw: &str| match what {
        What::Open { name, attributes, .. } => Some(tag(name, attributes)),
        What::Text => Some(joined(raw)).filter(|words| !words.is_empty()),
        What::Sheet => Some(tight(raw)).filter(|sheet| !sheet.is_empty()),
        What::Close { .. } | What::Comment | What::Prologue => None,
    };
    pieces.iter().filter_map(|piece| part(&piece.what, piece.raw)).collect()
}

fn tag(name: &str, attributes: &[Attribute<'_>]) -> String {
    let mut said: Vec<String> = attributes.iter().filter_map(pair).collect();
    said.sort_unstable();
    std::iter::once(name.to_ascii_lowercase()).chain(said).collect::<Vec<_>>().join(" ")
}

fn pair(attribute: &Attribute<'_>) -> Option<String> {
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
    (!value.is_empty()).then(|| format!("{}=\"{}\"", attribute.name, plain(&value)))
}

fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A sheet without blanks that mean nothing.
fn tight(sheet: &str) -> String {
    let mut tight = joined(sheet);
    for mark in ["{", "}", ":", ";", ","] {
        tight = tight.replace(&format!(" {mark}"), mark).replace(&format!("{mark} "), mark);
    }
    plain(&tight.replace(";}", "}"))
}

/// Long colours for short ones, and of fractions two digits: also where classes are named by them.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['#', '.', '-']) {
        let (before, after) = rest.split_at(at);
        plain.push_str(before);
        let mark = &after[..1];
        let word_end = |word: &str, is: fn(&char) -> bool| word.chars().take_while(is).count();
        plain.push_str(mark);
        rest = &after[1..];
        if mark == "#" {
            let digits = word_end(rest, char::is_ascii_hexdigit);
            if digits == 3 {
                rest[..3].chars().for_each(|c| plain.extend([c, c]));
                rest = &rest[3..];
            }
        } else if before.ends_with(|c: char| c.is_ascii_digit()) {
            let digits = word_end(rest, char::is_ascii_digit);
            plain.push_str(&rest[..digits.min(2)]);
            rest = &rest[digits..];
        }
    }
    plain + rest
}

fn style(value: &str) -> String {
    let tidy = |part: &str| joined(part).replace(": ", ":");
    let mut parts: Vec<String> =
        value.split(';').map(tidy).filter(|part| !part.is_empty()).collect();
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
        let one =
            "<style>a , b { width:33.333332% }</style><i class='b c-33-333332' style='color:#fff'>";
        let two = "<style>a,b{ width: 33.3333333%; }</style><i class='c-33-33333 b' style='color:#ffffff'>";
        assert_eq!(differences(one, two), []);
        assert_ne!(differences("<i style='width:33px'>", "<i style='width:34px'>"), []);
    }

    #[test]
    fn what_one_has_and_the_other_has_not_is_listed() {
        let differences = differences("<p>a</p><p>b</p>", "<p>a</p><i>b</i>");
        let listed: Vec<_> = differences.iter().map(|one| (one.what.as_str(), one.more)).collect();
        assert_eq!(listed, [("i", 1), ("p", -1)]);
    }
}
