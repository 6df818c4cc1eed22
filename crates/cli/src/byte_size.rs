//! Parses and formats amounts of bytes: `10MB`, `512KiB`, `1.5 GB`.

/// An amount of bytes as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, f64); 11] = [
    ("b", 1.0),
    ("k", 1e3),
    ("kb", 1e3),
    ("m", 1e6),
    ("mb", 1e6),
    ("g", 1e9),
    ("gb", 1e9),
    ("tb", 1e12),
    ("kib", 1024.0),
    ("mib", 1_048_576.0),
    ("gib", 1_073_741_824.0),
];

/// An exabyte: anything larger is a typing error.
const MAX_BYTES: f64 = 1e18;

impl std::str::FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not an amount of bytes, as 500, 64KiB, 10MB or 2GB");
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let unit = unit.trim().to_ascii_lowercase();
        let known = UNITS.into_iter().find(|(name, _)| *name == unit).map(|(_, scale)| scale);
        let scale = if unit.is_empty() { Some(1.0) } else { known };
        let bytes = number.parse::<f64>().map_err(|_| bad())? * scale.ok_or_else(bad)?;
        if !(0.0..=MAX_BYTES).contains(&bytes) {
            return Err(bad());
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked above"
        )]
        Ok(Self(bytes.round() as u64))
    }
}

/// An amount of bytes in one word.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub fn format_bytes(bytes: u64) -> String {
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
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for bad in ["", "MB", "-1", "10XB", "1e9", "1..2M", "99999999999999GB", "nan"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad}");
        }
    }

    #[test]
    fn amounts_are_shown_in_one_word() {
        let shown = [0, 999, 1_000, 65_536, 10_000_000, 2_500_000_000].map(format_bytes);
        assert_eq!(shown, ["0 B", "999 B", "1 kB", "65.5 kB", "10 MB", "2.5 GB"]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_named_in_the_error(text in r"[0-9.]{0,6} ?[kmgKMGiBb]{0,3}|\PC*") {
            match text.parse::<ByteSize>() {
                Ok(ByteSize(bytes)) => proptest::prop_assert!(bytes <= 1_000_000_000_000_000_000),
                Err(error) => proptest::prop_assert!(error.contains(&text)),
            }
        }
    }
}
