//! Server-sent events: decodes them from arbitrary chunks of bytes, as well as JSON lines, and
//! encodes them.

use serde::Serialize;

/// How events are separated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// `event:` and `data:` lines; an empty line ends an event.
    Sse,
    /// Each line is an event.
    Lines,
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DecodedEvent {
    /// Its name, if it has one.
    pub name: String,
    /// Its id, if it has one.
    pub id: String,
    /// Its data.
    pub data: String,
}

/// Decodes events from chunks.
#[derive(Debug)]
pub struct EventDecoder {
    framing: Framing,
    lines: LineSplitter,
    event: DecodedEvent,
    /// The event has a `data:` line; without one it is ignored.
    has_data: bool,
}

impl EventDecoder {
    /// A decoder at the beginning of a stream.
    pub fn new(framing: Framing) -> Self {
        Self { framing, lines: LineSplitter::default(), event: DecodedEvent::default(), has_data: false }
    }

    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// The next complete event.
    pub fn next_event(&mut self) -> Option<DecodedEvent> {
        while let Some(line) = self.lines.next() {
            if let Some(event) = self.line(&line) {
                return Some(event);
            }
        }
        None
    }

    /// The last event at the end of the stream: some servers do not end their last line.
    pub fn last_event(&mut self) -> Option<DecodedEvent> {
        let rest = self.lines.rest();
        self.line(&rest).or_else(|| self.line(""))
    }

    /// How many bytes of an incomplete event are buffered.
    pub fn buffered(&self) -> usize {
        self.lines.bytes.len() - self.lines.start + self.event.data.len()
    }

    fn line(&mut self, line: &str) -> Option<DecodedEvent> {
        match self.framing {
            Framing::Lines if line.trim().is_empty() => None,
            Framing::Lines => Some(DecodedEvent { data: line.to_owned(), ..DecodedEvent::default() }),
            Framing::Sse if line.is_empty() => self.close(),
            Framing::Sse => {
                self.field(line);
                None
            }
        }
    }

    /// A line without a name before its colon is a comment: servers send them to keep connections
    /// open.
    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => value.clone_into(&mut self.event.id),
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.has_data = true;
            }
            _ => {}
        }
    }

    fn close(&mut self) -> Option<DecodedEvent> {
        let event = std::mem::take(&mut self.event);
        std::mem::take(&mut self.has_data).then_some(event)
    }
}

/// Splits chunks into lines.
#[derive(Debug, Default)]
struct LineSplitter {
    bytes: Vec<u8>,
    /// Where the next line begins, and how far it was searched for its end.
    start: usize,
    searched: usize,
}

impl LineSplitter {
    fn push(&mut self, bytes: &[u8]) {
        // Consumed lines are dropped here, all at once.
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    fn next(&mut self) -> Option<String> {
        let Some(found) = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.bytes.len();
            return None;
        };
        let end = self.searched + found;
        let line = text(&self.bytes[self.start..end]);
        self.start = end + 1;
        self.searched = self.start;
        Some(line)
    }

    /// The unterminated last line. Even an empty one closes the event before it.
    fn rest(&mut self) -> String {
        let rest = text(&self.bytes[self.start..]);
        self.start = self.bytes.len();
        self.searched = self.start;
        rest
    }
}

fn text(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    String::from_utf8_lossy(line).into_owned()
}

/// The prefix of an event's data.
const DATA: &[u8] = b"data: ";

/// Writes an event with JSON data.
pub fn data(out: &mut Vec<u8>, body: &impl Serialize) {
    out.extend_from_slice(DATA);
    json(out, body);
    out.extend_from_slice(b"\n\n");
}

/// Writes an event with one line of text.
pub fn line(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(DATA);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\n\n");
}

/// Writes the name of the event that follows.
pub fn name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.push(b'\n');
}

/// Writes the id of the event that follows: a client that reconnects sends the last one.
pub fn id(out: &mut Vec<u8>, id: impl std::fmt::Display) {
    out.extend_from_slice(format!("id: {id}\n").as_bytes());
}

/// Writes JSON. Cannot fail: memory takes every byte, and all keys are strings.
pub fn json(out: &mut Vec<u8>, body: &impl Serialize) {
    let _ = serde_json::to_writer(out, body);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(framing: Framing, pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut decoder = EventDecoder::new(framing);
        let mut events = Vec::new();
        for piece in pieces {
            decoder.push(piece);
            while let Some(event) = decoder.next_event() {
                events.push((event.name, event.data));
            }
        }
        events.extend(decoder.last_event().map(|event| (event.name, event.data)));
        events
    }

    #[test]
    fn events_are_the_same_however_the_network_cuts_them() {
        let stream = "\u{feff}: hello\r\nevent: a\r\ndata: {\"x\":\"né🦀\"}\r\n\r\nid: 7\ndata: one\n\
                      data:two\n\nevent: empty\n\ndata: [DONE]";
        let expected = [("a", "{\"x\":\"né🦀\"}"), ("", "one\ntwo"), ("", "[DONE]")];
        for size in 1..stream.len() {
            let pieces: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
            let events = read(Framing::Sse, &pieces);
            let events: Vec<_> = events.iter().map(|(n, d)| (n.as_str(), d.as_str())).collect();
            assert_eq!(events, expected, "pieces of {size}");
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let mut sent = b": still here\n\n".to_vec();
        id(&mut sent, 8);
        name(&mut sent, "changes");
        data(&mut sent, &["a"]);
        line(&mut sent, "b");
        let mut decoder = EventDecoder::new(Framing::Sse);
        decoder.push(&sent);
        let (name, id, data) = ("changes".into(), "8".into(), "[\"a\"]".into());
        assert_eq!(decoder.next_event(), Some(DecodedEvent { name, id, data }));
        let second = DecodedEvent { data: "b".into(), ..DecodedEvent::default() };
        assert_eq!((decoder.next_event(), decoder.next_event()), (Some(second), None));
        assert_eq!(decoder.buffered(), 0);
    }

    #[test]
    fn each_line_of_json_is_an_event() {
        let events = read(Framing::Lines, &[b"{\"a\"", b":1}\n\n{\"b\":2}\r\n{\"c\"", b":3}"]);
        let data: Vec<_> = events.iter().map(|(_, data)| data.as_str()).collect();
        assert_eq!(data, ["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"]);
    }

    #[test]
    fn a_stream_that_is_closed_properly_has_no_rest() {
        assert_eq!(read(Framing::Sse, &[b"data: x\n\n"]).len(), 1);
        assert_eq!(read(Framing::Lines, &[b"{}\n"]).len(), 1);
        assert!(read(Framing::Sse, &[]).is_empty());
    }
}
