//! Names: of a message's file, and of what a message is about.

use std::fmt;
use std::str::FromStr;

use longshore::{Priority, Timestamp};
use sha2::{Digest, Sha256};

/// Senders share a spool by its buckets; a key is in one of them, whoever asks.
pub const BUCKETS: u8 = 16;
/// Longer keys are cut, and told apart by a hash: file names are 255 bytes at most.
const LONGEST: usize = 120;
/// What stays of such a key.
const KEPT: usize = 80;
/// Of any key.
const LARGEST: usize = 4096;

/// What a message is about, once and for all: `digest/daily/4711/2026-11-16`. Two messages with one key are
/// the same message.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(String);

/// A key that cannot be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a key has 1 to {LARGEST} bytes")]
pub struct KeyError;

impl Key {
    /// Any text that is neither empty nor huge.
    pub fn new(text: &str) -> Result<Self, KeyError> {
        match text.len() {
            1..=LARGEST => Ok(Self(encoded(text))),
            _ => Err(KeyError),
        }
    }

    /// As it is written in file names: what is not plain is written as `%` and two digits.
    pub fn as_file(&self) -> &str {
        &self.0
    }

    /// 64 bits that are the same for this key everywhere and always.
    pub(super) fn roll(&self) -> u64 {
        let hash: [u8; 32] = Sha256::digest(&self.0).into();
        u64::from_be_bytes(hash[..8].try_into().unwrap_or_default())
    }

    /// Which bucket it is in.
    pub fn bucket(&self) -> u8 {
        u8::try_from(self.roll() % u64::from(BUCKETS)).unwrap_or(0)
    }

    /// A Message-ID without its angle brackets, the same for this key always: whoever gets a message
    /// twice can know it.
    pub fn message_id(&self, domain: &str) -> String {
        let hash: [u8; 32] = Sha256::digest(&self.0).into();
        format!("{}@{domain}", hex(&hash[..16]))
    }

    /// Whether it begins like another one, as far as names of files tell: of long ones the end is cut.
    pub fn begins_with(&self, other: &Self) -> bool {
        let sure = other.0.len().min(KEPT);
        self.0.get(..sure) == other.0.get(..sure)
    }

    /// The key that is written so in names of files and in logs.
    pub fn from_file(name: &str) -> Option<Self> {
        let plain = |c: char| is_plain(c) || ['%', '~'].contains(&c);
        (!name.is_empty() && name.chars().all(plain)).then(|| Self(name.to_owned()))
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || ['_', '.', '@', '+', '='].contains(&c)
}

fn encoded(text: &str) -> String {
    use fmt::Write;
    let mut name = String::with_capacity(text.len());
    for byte in text.bytes() {
        match char::from(byte) {
            c if is_plain(c) => name.push(c),
            // Writing into a string cannot fail.
            _ => drop(write!(name, "%{byte:02x}")),
        }
    }
    if name.len() <= LONGEST && !name.starts_with('.') {
        return name;
    }
    let hash: [u8; 32] = Sha256::digest(text).into();
    let kept: String = name.trim_start_matches('.').chars().take(KEPT).collect();
    format!("{kept}~{}", hex(&hash[..16]))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a message's file: when it is due, how urgent it is, what it is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileName {
    /// Not to be sent before. Milliseconds.
    pub due: Timestamp,
    /// Which of those that are due goes first.
    pub priority: Priority,
    /// What it is about.
    pub key: Key,
    /// When it was due at first, if it was put off since: how late it is can be told without opening it.
    pub since: Option<Timestamp>,
}

impl FileName {
    /// A name; the time is cut to milliseconds.
    pub fn new(due: Timestamp, priority: Priority, key: Key) -> Self {
        let millis = due.as_micros().max(0) / 1000;
        Self { due: Timestamp::from_micros(millis * 1000), priority, key, since: None }
    }

    /// The name of the same message when it is put off.
    pub(super) fn put_off(&self, until: Timestamp) -> Self {
        let since = Some(self.wanted());
        Self { since, ..Self::new(until, self.priority, self.key.clone()) }
    }

    /// When it was due at first.
    pub fn wanted(&self) -> Timestamp {
        self.since.unwrap_or(self.due)
    }

    /// The smaller goes first; what is low and has waited long passes what is high and new.
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

/// What is no name of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("that is not the name of a message")]
pub struct NotAName;

impl FromStr for FileName {
    type Err = NotAName;

    fn from_str(name: &str) -> Result<Self, NotAName> {
        let mut parts = name.splitn(4, '-');
        let mut part = || parts.next().ok_or(NotAName);
        let due = time(part()?)?;
        let level: u8 = part()?.parse().map_err(|_| NotAName)?;
        let key = Key::from_file(part()?).ok_or(NotAName)?;
        let priority = Priority::new(level).map_err(|_| NotAName)?;
        let since = parts.next().map(time).transpose()?;
        Ok(Self { due, priority, key, since })
    }
}

fn time(millis: &str) -> Result<Timestamp, NotAName> {
    let millis: i64 = millis.parse().map_err(|_| NotAName)?;
    let micros = millis.checked_mul(1000).filter(|micros| *micros >= 0).ok_or(NotAName)?;
    Ok(Timestamp::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).expect("a key")
    }

    #[test]
    fn keys_that_differ_have_names_that_differ_and_no_name_leads_elsewhere() {
        let long = "x".repeat(300);
        let keys = ["a/b", "a%2fb", "a b", "../a", "..", ".", "a-b", "ä", "A", &long, &long[1..]];
        let names: std::collections::BTreeSet<String> =
            keys.iter().map(|text| key(text).as_file().to_owned()).collect();
        assert_eq!(names.len(), keys.len(), "{names:?}");
        for name in names {
            assert!(!name.contains('/') && !name.starts_with('.') && name.len() < 200, "{name}");
        }
        assert_eq!((Key::new(""), Key::new(&"x".repeat(5000))), (Err(KeyError), Err(KeyError)));
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
            let off = name.put_off(name.due + std::time::Duration::from_secs(60)).put_off(name.due);
            proptest::prop_assert_eq!(off.wanted(), name.due);
            proptest::prop_assert_eq!(off.to_string().parse::<FileName>(), Ok(off.clone()));
            proptest::prop_assert!(off.to_string().len() <= 255);
            proptest::prop_assert!(name.key.bucket() < BUCKETS);
        }
    }

    #[test]
    fn keys_are_known_by_what_they_begin_with_also_if_they_are_long() {
        let key = |text: &str| Key::new(text).expect("a key");
        let own = key("t/news/daily/");
        assert!(key("t/news/daily/7/2026-11-16").begins_with(&own));
        assert!(key(&format!("t/news/daily/{}", "7".repeat(300))).begins_with(&own));
        for other in ["t/news/daily", "t/news/immediate/7/1", "u/news/daily/7/1", "welcome/7"] {
            assert!(!key(other).begins_with(&own), "{other}");
        }
        let long = format!("t/{}/daily/", "n".repeat(300));
        assert!(key(&format!("{long}7/2026-11-16")).begins_with(&key(&long)));
    }
}
