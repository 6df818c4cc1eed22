//! Amounts of bytes as people write and read them: `10MB`, `512KiB`, `1.5 GB`.

use serde::Deserialize;

/// An amount of bytes in an argument or a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ByteSize(pub u64);

/// The text is not an amount of bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an amount of bytes, as 500, 64KiB, 10MB or 2GB")]
pub struct ParseByteSizeError(String);

const UNITS: [(&str, f64); 17] = [
    ("b", 1.0),
    ("k", 1e3),
    ("kb", 1e3),
    ("m", 1e6),
    ("mb", 1e6),
    ("g", 1e9),
    ("gb", 1e9),
    ("t", 1e12),
    ("tb", 1e12),
    ("ki", 1024.0),
    ("kib", 1024.0),
    ("mi", 1_048_576.0),
    ("mib", 1_048_576.0),
    ("gi", 1_073_741_824.0),
    ("gib", 1_073_741_824.0),
    ("ti", 1_099_511_627_776.0),
    ("tib", 1_099_511_627_776.0),
];

/// An exabyte: anything larger is a typing error.
const MAX_BYTES: f64 = 1e18;

impl std::str::FromStr for ByteSize {
    type Err = ParseByteSizeError;

    fn from_str(text: &str) -> Result<Self, ParseByteSizeError> {
        let bad = || ParseByteSizeError(text.to_owned());
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let unit = unit.trim().to_ascii_lowercase();
        let known = UNITS.into_iter().find(|(name, _)| *name == unit).map(|(_, scale)| scale);
        let scale = if unit.is_empty() { Some(1.0) } else { known };
        let bytes = number.parse::<f64>().map_err(|_| bad())? * scale.ok_or_else(bad)?;
        if !(0.0..=MAX_BYTES).contains(&bytes) {
            return Err(bad());
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
        Ok(Self(bytes.round() as u64))
    }
}

impl TryFrom<String> for ByteSize {
    type Error = ParseByteSizeError;

    fn try_from(text: String) -> Result<Self, ParseByteSizeError> {
        text.parse()
    }
}

/// An amount of bytes in one word.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub fn format(bytes: u64) -> String {
    let exact = bytes as f64;
    match exact {
        b if b < 1e3 => format!("{bytes} B"),
        b if b < 1e6 => format!("{} kB", one_decimal(b / 1e3)),
        b if b < 1e9 => format!("{} MB", one_decimal(b / 1e6)),
        b => format!("{} GB", one_decimal(b / 1e9)),
    }
}

/// A number with one decimal, unless that is zero.
fn one_decimal(number: f64) -> String {
    let text = format!("{number:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("500", 500),
            ("500B", 500),
            ("64KiB", 65_536),
            ("10MB", 10_000_000),
            ("10 mb", 10_000_000),
            ("1.5G", 1_500_000_000),
            ("2TB", 2_000_000_000_000),
            ("500MB", 500_000_000),
            ("8Gi", 8_589_934_592),
            ("1TiB", 1_099_511_627_776),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for bad in ["", "MB", "-1", "10XB", "1e9", "1..2M", "99999999999999GB", "nan"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad}");
        }
    }

    #[test]
    fn amounts_are_shown_in_one_word() {
        let shown = [0, 999, 1_000, 65_536, 10_000_000, 2_500_000_000].map(format);
        assert_eq!(shown, ["0 B", "999 B", "1 kB", "65.5 kB", "10 MB", "2.5 GB"]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_named_in_the_error(text in r"[0-9.]{0,6} ?[kmgKMGiBb]{0,3}|\PC*") {
            match text.parse::<ByteSize>() {
                Ok(ByteSize(bytes)) => proptest::prop_assert!(bytes <= 1_000_000_000_000_000_000),
                Err(error) => proptest::prop_assert!(error.to_string().contains(&text)),
            }
        }
    }
}
