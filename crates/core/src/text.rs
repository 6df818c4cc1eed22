//! Shortens texts, groups digits and keeps passwords out of messages, for people.

/// The first `max` characters; `…` marks a cut.
pub fn truncate_chars(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The first `max` bytes, less the part of a character; `…` marks a cut.
pub fn truncate_bytes(text: &str, max: usize) -> String {
    match text.floor_char_boundary(max) {
        end if end < text.len() => format!("{}…", &text[..end]),
        _ => text.to_owned(),
    }
}

/// Whether a message may repeat a text that should be a scheme or file name. A database's address with a
/// password may stand in its place, as `host=db password=…`, and has other characters.
pub fn is_plain_name(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || "._-+/~".contains(c))
}

/// A number with a separator before each group of three digits.
pub fn group_digits(number: u64, separator: char) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(separator);
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(truncate_chars("üüü", 2), "üü…");
        assert_eq!(truncate_chars("üüü", 3), "üüü");
        assert_eq!(truncate_bytes("üüü", 5), "üü…");
        assert_eq!(truncate_bytes("üüü", 6), "üüü");
    }

    #[test]
    fn digits_are_grouped_by_three() {
        let written = [0, 7, 999, 1_000, 1_234_567].map(|number| group_digits(number, ','));
        assert_eq!(written, ["0", "7", "999", "1,000", "1,234,567"]);
    }
}
