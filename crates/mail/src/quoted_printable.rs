//! Quoted-printable encoding (RFC 2045, 6.7): ASCII lines of at most 76 characters.

/// Encodes a text. Line ends become CRLF.
pub(crate) fn encode(text: &str) -> Vec<u8> {
    ::quoted_printable::encode(text.replace("\r\n", "\n").replace('\n', "\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &str) -> String {
        String::from_utf8(encode(text)).expect("ASCII")
    }

    /// Decodes as RFC 2045, section 6.7, says.
    fn decode(quoted: &[u8]) -> Vec<u8> {
        let (mut out, mut rest) = (Vec::new(), quoted);
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            match (byte, rest) {
                (b'=', [b'\r', b'\n', after @ ..]) => rest = after,
                (b'=', [high, low, after @ ..]) => {
                    let hex = [*high, *low];
                    let hex = std::str::from_utf8(&hex).expect("two digits");
                    out.push(u8::from_str_radix(hex, 16).expect("two digits"));
                    rest = after;
                }
                (byte, _) => out.push(*byte),
            }
        }
        out
    }

    #[test]
    fn plain_words_stay_what_they_are_and_others_are_numbers() {
        assert_eq!(encoded("a=b\tc"), "a=3Db\tc");
        assert_eq!(encoded("ä\r\nb \nc\rd"), "=C3=A4\r\nb=20\r\nc=0Dd");
        assert_eq!(encoded(""), "");
        assert_eq!(encoded("\n"), "\r\n");
    }

    #[test]
    fn long_lines_go_on_and_no_number_is_cut() {
        let long = "x".repeat(75);
        assert_eq!(encoded(&format!("{long}y")), format!("{long}y"));
        assert_eq!(encoded(&format!("{long}yz")), format!("{long}=\r\nyz"));
        assert_eq!(encoded(&format!("{}=", &long[1..])), format!("{}=\r\n=3D", &long[1..]));
        assert_eq!(encoded(&format!("{} ", &long[1..])), format!("{}=\r\n=20", &long[1..]));
    }

    proptest::proptest! {
        #[test]
        fn what_is_read_is_what_was_said(text in "[ -~äß€\t\r\n=]{0,400}") {
            let quoted = encode(&text);
            for line in quoted.split(|byte| *byte == b'\n') {
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                proptest::prop_assert!(line.len() <= 76 && line.is_ascii());
                proptest::prop_assert!(!line.ends_with(b" ") && !line.ends_with(b"\t"));
            }
            let ends = |text: &str| text.replace("\r\n", "\n").replace('\n', "\r\n");
            proptest::prop_assert_eq!(String::from_utf8(decode(&quoted)).expect("text"), ends(&text));
        }
    }
}
