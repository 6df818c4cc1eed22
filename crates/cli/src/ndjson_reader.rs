//! Reads one JSON payload per line, in bounded memory, from untrusted input.

use std::io::{self, BufRead, Read};

use longshore::unit::MAX_PAYLOAD;

/// Bytes of payload after which a chunk is closed early.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// A part of the input.
#[derive(Debug, Default)]
pub struct PayloadChunk {
    /// The payloads, as written.
    pub payloads: Vec<Vec<u8>>,
    /// The line of each payload, from 1.
    pub payload_lines: Vec<u64>,
    /// Input lines consumed up to its end, blank ones included.
    pub lines: u64,
    /// Why the input ends after this chunk, if it does.
    pub end: Option<InputEnd>,
}

/// How the input ended.
#[derive(Debug)]
pub enum InputEnd {
    /// The end was reached.
    Input,
    /// An invalid line; the lines before it are valid.
    Bad {
        /// Its number, from 1.
        line: u64,
        /// Why it is invalid.
        problem: String,
    },
    /// The input could not be read.
    Broken(io::Error),
}

/// Splits an input into chunks.
#[derive(Debug)]
pub struct NdjsonReader<R> {
    from: R,
    lines: u64,
    check: PayloadCheck,
}

/// Why a payload that is JSON is not valid for its kind.
pub type PayloadCheck = fn(&[u8]) -> Result<(), String>;

impl<R: BufRead> NdjsonReader<R> {
    /// Starts at the beginning of `from`.
    pub fn new(from: R) -> Self {
        Self { from, lines: 0, check: |_| Ok(()) }
    }

    /// Also applies this check to each payload.
    pub fn checked_by(self, check: PayloadCheck) -> Self {
        Self { check, ..self }
    }

    /// Skips this many lines without checking them. Returns how many there were.
    pub fn skip(&mut self, lines: u64) -> io::Result<u64> {
        while self.lines < lines && self.skip_line()? {
            self.lines += 1;
        }
        Ok(self.lines)
    }

    fn skip_line(&mut self) -> io::Result<bool> {
        let mut any = false;
        loop {
            let buffer = self.from.fill_buf()?;
            if buffer.is_empty() {
                return Ok(any);
            }
            any = true;
            let newline = buffer.iter().position(|byte| *byte == b'\n');
            let used = newline.map_or(buffer.len(), |at| at + 1);
            self.from.consume(used);
            if newline.is_some() {
                return Ok(true);
            }
        }
    }

    /// The next chunk, of at most `most` payloads.
    pub fn chunk(&mut self, most: usize) -> PayloadChunk {
        let (mut payloads, mut payload_lines, mut bytes, mut end) = (Vec::new(), Vec::new(), 0, None);
        while end.is_none() && payloads.len() < most && bytes < CHUNK_BYTES {
            match self.line() {
                Ok(Some(payload)) if payload.is_empty() => {}
                Ok(Some(payload)) => {
                    bytes += payload.len();
                    payloads.push(payload);
                    payload_lines.push(self.lines);
                }
                Ok(None) => end = Some(InputEnd::Input),
                Err(ended) => end = Some(ended),
            }
        }
        PayloadChunk { payloads, payload_lines, lines: self.lines, end }
    }

    /// The next line, trimmed; `None` at the end. Counted only if it is valid.
    fn line(&mut self) -> Result<Option<Vec<u8>>, InputEnd> {
        let mut line = Vec::new();
        // One byte for the newline, one to detect a line that is too long.
        let mut bounded = (&mut self.from).take(MAX_PAYLOAD as u64 + 2);
        let read = bounded.read_until(b'\n', &mut line).map_err(InputEnd::Broken)?;
        if read == 0 {
            return Ok(None);
        }
        if self.lines == 0 && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        let payload = line.trim_ascii();
        let valid =
            check(payload).and_then(|()| if payload.is_empty() { Ok(()) } else { (self.check)(payload) });
        valid.map_err(|problem| InputEnd::Bad { line: self.lines + 1, problem })?;
        self.lines += 1;
        Ok(Some(if payload.len() == line.len() { line } else { payload.to_vec() }))
    }
}

/// Checks that `bytes` is one payload, or empty.
pub fn check(bytes: &[u8]) -> Result<(), String> {
    if bytes.len() > MAX_PAYLOAD {
        return Err(format!("is longer than {} MiB", MAX_PAYLOAD >> 20));
    }
    if bytes.is_empty() {
        return Ok(());
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format!("is not UTF-8 (at byte {})", error.valid_up_to() + 1))?;
    serde_json::from_str::<serde::de::IgnoredAny>(text)
        .map(|_| ())
        .map_err(|error| format!("is not JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[u8], most: usize) -> (Vec<Vec<u8>>, u64, InputEnd) {
        let mut lines = NdjsonReader::new(input);
        let mut all = Vec::new();
        loop {
            let chunk = lines.chunk(most);
            all.extend(chunk.payloads);
            if let Some(end) = chunk.end {
                return (all, chunk.lines, end);
            }
        }
    }

    #[test]
    fn blank_lines_are_counted_but_not_sent() {
        let (payloads, lines, end) = read(b"\xef\xbb\xbf1\r\n\n  \n{\"a\": 2}\n3", 2);
        assert_eq!(payloads, [b"1".to_vec(), b"{\"a\": 2}".to_vec(), b"3".to_vec()]);
        assert_eq!(lines, 5);
        assert!(matches!(end, InputEnd::Input));
    }

    #[test]
    fn a_bad_line_is_named_and_those_before_it_are_kept() {
        for (bad, why) in [
            (&b"{\"a\":"[..], "is not JSON"),
            (b"\xff\xfe", "is not UTF-8"),
            (b"1 2", "trailing characters"),
            (b"\"\xc3(\"", "is not UTF-8"),
        ] {
            let input = [b"1\n2\n", bad, b"\n4\n"].concat();
            let (payloads, lines, end) = read(&input, 1000);
            assert_eq!((payloads.len(), lines), (2, 2));
            let InputEnd::Bad { line: 3, problem } = end else { panic!("{end:?}") };
            assert!(problem.contains(why), "{problem}");
        }
    }

    #[test]
    fn an_endless_line_is_refused_without_being_kept() {
        let endless = io::repeat(b'1');
        let end = NdjsonReader::new(io::BufReader::new(endless)).chunk(10).end;
        assert!(matches!(end, Some(InputEnd::Bad { line: 1, .. })), "{end:?}");
    }

    #[test]
    fn the_longest_payload_just_fits() {
        let mut input = vec![b'1'; MAX_PAYLOAD];
        input.push(b'\n');
        assert_eq!(read(&input, 10).0.len(), 1);
    }

    #[test]
    fn skipping_stops_at_the_end_of_the_input() {
        let mut lines = NdjsonReader::new(&b"a\nb\n\nd"[..]);
        assert_eq!(lines.skip(3).unwrap(), 3);
        assert_eq!(lines.skip(9).unwrap(), 4);
    }

    /// A part of the input: mostly valid lines, else every second line would be invalid.
    fn part() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
        use proptest::prelude::{Just, any, prop_oneof};
        let good = |text: &'static [u8]| Just(text.to_vec());
        prop_oneof![
            4 => good(b"1\n"),
            2 => good(b"{\"a\": \"\xc3\xbc\"}\r\n"),
            1 => good(b" \n"),
            1 => good(b"\xef\xbb\xbf"),
            1 => good(b"{\"a\":"),
            1 => any::<Vec<u8>>(),
        ]
    }

    proptest::proptest! {
        #[test]
        fn chunks_do_not_depend_on_their_size(input: Vec<u8>, most in 1_usize..5) {
            let (payloads, lines, _) = read(&input, most);
            let (whole, all_lines, _) = read(&input, usize::MAX);
            proptest::prop_assert_eq!((payloads, lines), (whole, all_lines));
        }

        #[test]
        fn any_bytes_are_read_up_to_the_first_bad_line_which_is_named(
            parts in proptest::collection::vec(part(), 0..12),
        ) {
            let input = parts.concat();
            let (_, read, end) = read(&input, 3);
            let input = input.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&input);
            let mut lines = input.split(|byte| *byte == b'\n');
            let bad = lines.position(|line| check(line.trim_ascii()).is_err());
            match (end, bad) {
                (InputEnd::Bad { line, problem }, Some(bad)) => {
                    proptest::prop_assert_eq!((line, read), (bad as u64 + 1, bad as u64));
                    proptest::prop_assert!(problem.contains("column") || problem.contains("byte"));
                }
                (InputEnd::Input, None) => {}
                (end, bad) => proptest::prop_assert!(false, "{:?}, bad line at {:?}", end, bad),
            }
        }
    }
}
