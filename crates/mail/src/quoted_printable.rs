//! Quoted-printable encoding (RFC 2045, 6.7): ASCII lines of at most 76 characters.
//!
//! lettre encodes character by character in three passes, which took a sixth of a digest's time. This encoder
//! copies runs of plain characters whole.

/// Characters per line, without the `=` of a soft line break.
const MAX_LINE: usize = 75;

/// Encodes a text. Line ends become CRLF.
pub(crate) fn encode(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + text.len() / 8);
    for line in text.split_inclusive('\n') {
        let (line, end): (_, &[u8]) = match line.strip_suffix('\n') {
            Some(line) => (line.strip_suffix('\r').unwrap_or(line), b"\r\n"),
            None => (line, b""),
        };
        // White space at the end of a line may be stripped in transit, so it is escaped.
        match line.as_bytes().split_last() {
            Some((blank @ (b' ' | b'\t'), before)) => {
                let room = push_bytes(before, MAX_LINE, &mut out);
                escape(*blank, room, &mut out);
            }
            _ => _ = push_bytes(line.as_bytes(), MAX_LINE, &mut out),
        }
        out.extend_from_slice(end);
    }
    out
}

/// Writes bytes of one line and returns the room left on the output line.
fn push_bytes(mut bytes: &[u8], mut room: usize, out: &mut Vec<u8>) -> usize {
    while !bytes.is_empty() {
        let run = bytes.iter().take(room).take_while(|byte| is_plain(**byte)).count();
        let (plain, rest) = bytes.split_at(run);
        out.extend_from_slice(plain);
        room -= run;
        bytes = match rest.split_first() {
            Some((byte, rest)) if !is_plain(*byte) => {
                room = escape(*byte, room, out);
                rest
            }
            Some(_) => {
                room = soft_break(out);
                rest
            }
            None => rest,
        };
    }
    room
}

fn escape(byte: u8, room: usize, out: &mut Vec<u8>) -> usize {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let room = if room < 3 { soft_break(out) } else { room };
    out.extend([b'=', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    room - 3
}

fn soft_break(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(b"=\r\n");
    MAX_LINE
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t') && byte != b'='
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
        assert_eq!(encoded(&long), long);
        assert_eq!(encoded(&format!("{long}y")), format!("{long}=\r\ny"));
        assert_eq!(encoded(&format!("{}=", &long[2..])), format!("{}=\r\n=3D", &long[2..]));
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
