//! Message keys and the file names that contain them.

use std::fmt;
use std::str::FromStr;

use longshore::{Priority, Timestamp};
use sha2::{Digest, Sha256};

/// Number of buckets that senders divide a spool into; a key's bucket is a hash of the key.
pub const BUCKETS: u8 = 16;
/// Longer keys are cut and get a hash: file names have at most 255 bytes.
const MAX_PLAIN_KEY: usize = 120;
/// How much of such a key is kept.
const CUT_KEY: usize = 80;
/// Maximum size of a key.
const MAX_KEY: usize = 4096;

/// The identity of a message, such as `digest/daily/4711/2026-11-16`. There is one message per key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageKey(String);

/// The key is empty or too long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a key has 1 to {MAX_KEY} bytes")]
pub struct MessageKeyError;

impl MessageKey {
    /// A key from a text of 1 to 4096 bytes.
    pub fn new(text: &str) -> Result<Self, MessageKeyError> {
        match text.len() {
            1..=MAX_KEY => Ok(Self(percent_encode(text))),
            _ => Err(MessageKeyError),
        }
    }

    /// The key as in file names: other characters are percent-encoded.
    pub fn encoded(&self) -> &str {
        &self.0
    }

    /// A stable hash of the key.
    pub(super) fn stable_hash(&self) -> u64 {
        let hash: [u8; 32] = Sha256::digest(&self.0).into();
        u64::from_be_bytes(hash[..8].try_into().unwrap_or_default())
    }

    /// The key's bucket.
    pub fn bucket(&self) -> u8 {
        u8::try_from(self.stable_hash() % u64::from(BUCKETS)).unwrap_or(0)
    }

    /// The Message-ID of this key, without angle brackets. It is stable, so that recipients recognise
    /// duplicates.
    pub fn message_id(&self, domain: &str) -> String {
        let hash: [u8; 32] = Sha256::digest(&self.0).into();
        format!("{}@{domain}", hex(&hash[..16]))
    }

    /// Whether the key starts with another one. Cut keys are compared only as far as they are kept.
    pub fn has_prefix(&self, other: &Self) -> bool {
        let length = other.0.len().min(CUT_KEY);
        self.0.get(..length) == other.0.get(..length)
    }

    /// Parses a key from its form in file names and logs.
    pub fn from_encoded(name: &str) -> Option<Self> {
        let allowed = |c: char| is_unreserved(c) || ['%', '~'].contains(&c);
        (!name.is_empty() && name.chars().all(allowed)).then(|| Self(name.to_owned()))
    }
}

fn is_unreserved(c: char) -> bool {
    c.is_ascii_alphanumeric() || ['_', '.', '@', '+', '='].contains(&c)
}

fn percent_encode(text: &str) -> String {
    use fmt::Write;
    let mut name = String::with_capacity(text.len());
    for byte in text.bytes() {
        match char::from(byte) {
            c if is_unreserved(c) => name.push(c),
            // Writing into a string cannot fail.
            _ => drop(write!(name, "%{byte:02x}")),
        }
    }
    if name.len() <= MAX_PLAIN_KEY && !name.starts_with('.') {
        return name;
    }
    let hash: [u8; 32] = Sha256::digest(text).into();
    let prefix: String = name.trim_start_matches('.').chars().take(CUT_KEY).collect();
    format!("{prefix}~{}", hex(&hash[..16]))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for MessageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A message's file name: due time, priority, key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileName {
    /// Not sent before this time. Millisecond precision.
    pub due: Timestamp,
    /// Which due message goes first.
    pub priority: Priority,
    /// The message's key.
    pub key: MessageKey,
    /// When it was originally due, if it was postponed or is to be sent later: shows its delay without
    /// opening the file.
    pub since: Option<Timestamp>,
}

impl FileName {
    /// A name; the time is truncated to milliseconds.
    pub fn new(due: Timestamp, priority: Priority, key: MessageKey) -> Self {
        let millis = due.as_micros().max(0) / 1000;
        Self { due: Timestamp::from_micros(millis * 1000), priority, key, since: None }
    }

    /// The name of a message that is enqueued at `created`.
    pub(super) fn enqueued(created: Timestamp, due: Timestamp, priority: Priority, key: MessageKey) -> Self {
        let name = Self::new(due, priority, key);
        if name.due > created { name.postponed(due) } else { name }
    }

    /// Whether it can be sent. A message that was not postponed can, whatever the clock of the process
    /// that enqueued it was.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.since.is_none() || self.due <= now
    }

    /// The name of this message when it is postponed.
    pub(super) fn postponed(&self, until: Timestamp) -> Self {
        let since = Some(self.first_due());
        Self { since, ..Self::new(until, self.priority, self.key.clone()) }
    }

    /// When it was originally due.
    pub fn first_due(&self) -> Timestamp {
        self.since.unwrap_or(self.due)
    }

    /// The sort key for sending: lower first. An old message of low priority passes a new one of high
    /// priority.
    pub fn rank(&self) -> Timestamp {
        self.priority.rank(self.due)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |time: Timestamp| time.as_micros() / 1000;
        write!(f, "{:014}-{}-{}", millis(self.due), self.priority.level(), self.key)?;
        self.since.map_or(Ok(()), |since| write!(f, "-{:014}", millis(since)))
    }
}

/// The text is not a message's file name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a message's file name")]
pub struct ParseFileNameError;

impl FromStr for FileName {
    type Err = ParseFileNameError;

    fn from_str(name: &str) -> Result<Self, ParseFileNameError> {
        let mut parts = name.splitn(4, '-');
        let mut part = || parts.next().ok_or(ParseFileNameError);
        let due = time(part()?)?;
        let level: u8 = part()?.parse().map_err(|_| ParseFileNameError)?;
        let key = MessageKey::from_encoded(part()?).ok_or(ParseFileNameError)?;
        let priority = Priority::new(level).map_err(|_| ParseFileNameError)?;
        let since = parts.next().map(time).transpose()?;
        Ok(Self { due, priority, key, since })
    }
}

fn time(millis: &str) -> Result<Timestamp, ParseFileNameError> {
    let millis: i64 = millis.parse().map_err(|_| ParseFileNameError)?;
    let micros = millis.checked_mul(1000).filter(|micros| *micros >= 0).ok_or(ParseFileNameError)?;
    Ok(Timestamp::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> MessageKey {
        MessageKey::new(text).expect("a key")
    }

    #[test]
    fn a_message_without_a_delay_is_due_by_any_clock() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let name = |due| FileName::enqueued(at(5_000), at(due), Priority::LOW, key("k"));
        // The sender's clock is an hour behind that of the process that enqueued the message.
        assert!(name(5_000).is_due(at(1_400)));
        assert!(!name(5_060).is_due(at(5_059)) && name(5_060).is_due(at(5_060)));
        assert!(!name(5_000).postponed(at(6_000)).is_due(at(5_999)));
    }

    #[test]
    fn keys_that_differ_have_names_that_differ_and_no_name_leads_elsewhere() {
        let long = "x".repeat(300);
        let keys = ["a/b", "a%2fb", "a b", "../a", "..", ".", "a-b", "ä", "A", &long, &long[1..]];
        let names: std::collections::BTreeSet<String> =
            keys.iter().map(|text| key(text).encoded().to_owned()).collect();
        assert_eq!(names.len(), keys.len(), "{names:?}");
        for name in names {
            assert!(!name.contains('/') && !name.starts_with('.') && name.len() < 200, "{name}");
        }
        assert_eq!(
            (MessageKey::new(""), MessageKey::new(&"x".repeat(5000))),
            (Err(MessageKeyError), Err(MessageKeyError))
        );
    }

    #[test]
    fn names_sort_by_their_time() {
        let at = |seconds: i64| {
            FileName::new(Timestamp::from_micros(seconds * 1_000_000), Priority::LOW, key("k"))
        };
        assert!(at(9).to_string() < at(10).to_string());
        assert!(at(999_999_999).to_string() < at(1_763_300_000).to_string());
    }

    #[test]
    fn what_is_no_name_is_none() {
        for name in [
            "",
            "1",
            "1-5",
            "1-5-",
            "1-0-a",
            "x-5-a",
            "1-5-a/b",
            "-1-5-a",
            "9999999999999999999-5-a",
            "1-5-a-",
            "1-5-a-x",
            "1-5-a-1-1",
            ".x",
        ] {
            assert!(name.parse::<FileName>().is_err(), "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_name_is_read_as_it_was_written(micros in 0..4_000_000_000_000_000_i64, level in 1..=9_u8, text in ".{1,60}") {
            let priority = Priority::new(level).expect("in range");
            let name = FileName::new(Timestamp::from_micros(micros), priority, key(&text));
            proptest::prop_assert_eq!(name.to_string().parse::<FileName>(), Ok(name.clone()));
            let postponed = name.postponed(name.due + std::time::Duration::from_secs(60)).postponed(name.due);
            proptest::prop_assert_eq!(postponed.first_due(), name.due);
            proptest::prop_assert_eq!(postponed.to_string().parse::<FileName>(), Ok(postponed.clone()));
            proptest::prop_assert!(postponed.to_string().len() <= 255);
            proptest::prop_assert!(name.key.bucket() < BUCKETS);
        }
    }

    #[test]
    fn keys_are_known_by_what_they_begin_with_also_if_they_are_long() {
        let key = |text: &str| MessageKey::new(text).expect("a key");
        let own = key("t/news/daily/");
        assert!(key("t/news/daily/7/2026-11-16").has_prefix(&own));
        assert!(key(&format!("t/news/daily/{}", "7".repeat(300))).has_prefix(&own));
        for other in ["t/news/daily", "t/news/immediate/7/1", "u/news/daily/7/1", "welcome/7"] {
            assert!(!key(other).has_prefix(&own), "{other}");
        }
        let long = format!("t/{}/daily/", "n".repeat(300));
        assert!(key(&format!("{long}7/2026-11-16")).has_prefix(&key(&long)));
    }
}
