//! Quoted-printable, as mail carries pages: lines of at most 76 characters, all of them ASCII.
//!
//! lettre does this too, character by character and in three passes, which was a sixth of the cost of a
//! digest; here plain runs are copied whole.

/// A line has so many characters, and the `=` that says that it goes on.
const LONGEST: usize = 75;

/// A text in quoted-printable. Its line ends become CRLF, whatever they were.
pub(crate) fn quoted(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + text.len() / 8);
    for line in text.split_inclusive('\n') {
        let (line, end): (_, &[u8]) = match line.strip_suffix('\n') {
            Some(line) => (line.strip_suffix('\r').unwrap_or(line), b"\r\n"),
            None => (line, b""),
        };
        // A blank at a line's end may be lost on the way.
        match line.as_bytes().split_last() {
            Some((blank @ (b' ' | b'\t'), before)) => {
                let room = push(before, LONGEST, &mut out);
                escape(*blank, room, &mut out);
            }
            _ => _ = push(line.as_bytes(), LONGEST, &mut out),
        }
        out.extend_from_slice(end);
    }
    out
}

/// Says these bytes of a line; the room that is left on it.
fn push(mut bytes: &[u8], mut room: usize, out: &mut Vec<u8>) -> usize {
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
                room = go_on(out);
                rest
            }
            None => rest,
        };
    }
    room
}

fn escape(byte: u8, room: usize, out: &mut Vec<u8>) -> usize {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let room = if room < 3 { go_on(out) } else { room };
    out.extend([b'=', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    room - 3
}

fn go_on(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(b"=\r\n");
    LONGEST
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t') && byte != b'='
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        String::from_utf8(quoted(text)).expect("ASCII")
    }

    /// By the letter of RFC 2045, section 6.7.
    fn read(quoted: &[u8]) -> Vec<u8> {
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
        assert_eq!(said("a=b\tc"), "a=3Db\tc");
        assert_eq!(said("ä\r\nb \nc\rd"), "=C3=A4\r\nb=20\r\nc=0Dd");
        assert_eq!(said(""), "");
        assert_eq!(said("\n"), "\r\n");
    }

    #[test]
    fn long_lines_go_on_and_no_number_is_cut() {
        let long = "x".repeat(75);
        assert_eq!(said(&long), long);
        assert_eq!(said(&format!("{long}y")), format!("{long}=\r\ny"));
        assert_eq!(said(&format!("{}=", &long[2..])), format!("{}=\r\n=3D", &long[2..]));
        assert_eq!(said(&format!("{} ", &long[1..])), format!("{}=\r\n=20", &long[1..]));
    }

    proptest::proptest! {
        #[test]
        fn what_is_read_is_what_was_said(text in "[ -~äß€\t\r\n=]{0,400}") {
            let quoted = quoted(&text);
            for line in quoted.split(|byte| *byte == b'\n') {
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                proptest::prop_assert!(line.len() <= 76 && line.is_ascii());
                proptest::prop_assert!(!line.ends_with(b" ") && !line.ends_with(b"\t"));
            }
            let ends = |text: &str| text.replace("\r\n", "\n").replace('\n', "\r\n");
            proptest::prop_assert_eq!(String::from_utf8(read(&quoted)).expect("text"), ends(&text));
        }
    }
}
