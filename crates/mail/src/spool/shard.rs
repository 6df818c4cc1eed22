//! Divides a spool between senders: one sender per bucket, by a file lock that the system releases with the
//! process.

use std::fs::{File, TryLockError};
use std::str::FromStr;

use super::due_scan::ScanCache;
use super::error::{IoContext, SpoolError};
use super::filename::{BUCKETS, FileName, MessageKey};
use super::{Spool, State, durable_fs};

/// A share of the messages: every key with a bucket that is `part` modulo `of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    part: u8,
    of: u8,
}

/// The text is not a share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a share is written as PART/OF, such as 0/4, with 1 to {BUCKETS} parts")]
pub struct ParseShareError;

impl Share {
    /// All messages.
    pub const ALL: Self = Self { part: 0, of: 1 };

    /// Part `part`, counted from 0, of `of`.
    pub fn new(part: u8, of: u8) -> Result<Self, ParseShareError> {
        match part < of && of <= BUCKETS {
            true => Ok(Self { part, of }),
            false => Err(ParseShareError),
        }
    }

    fn contains(self, bucket: u8) -> bool {
        bucket % self.of == self.part
    }
}

impl FromStr for Share {
    type Err = ParseShareError;

    fn from_str(text: &str) -> Result<Self, ParseShareError> {
        let (part, of) = text.split_once('/').ok_or(ParseShareError)?;
        let number = |text: &str| text.parse().map_err(|_| ParseShareError);
        Self::new(number(part)?, number(of)?)
    }
}

/// The exclusive right to send a share of a spool's messages, as long as this value lives.
#[derive(Debug)]
pub struct Shard {
    pub(super) spool: Spool,
    share: Share,
    only: Option<MessageKey>,
    pub(super) scan_cache: ScanCache,
    /// The system releases the locks when the process ends, also by a crash.
    _locks: Vec<File>,
}

impl Spool {
    /// Locks a share; an error if another sender has any of its buckets. Shares with different divisors that
    /// overlap are rejected too.
    pub fn shard(&self, share: Share) -> Result<Shard, SpoolError> {
        let buckets = (0..BUCKETS).filter(|bucket| share.contains(*bucket));
        let locks = buckets.map(|bucket| self.lock(bucket)).collect::<Result<Vec<_>, _>>()?;
        let (scan_cache, only) = (ScanCache::default(), None);
        Ok(Shard { spool: self.clone(), share, only, scan_cache, _locks: locks })
    }

    /// Locks a bucket. Bucket number [`BUCKETS`] is the lock for pruning.
    pub(super) fn lock(&self, bucket: u8) -> Result<File, SpoolError> {
        let path = self.dir("locks").join(bucket.to_string());
        let file = File::options().create(true).append(true).open(&path).context("open", &path)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                Err(SpoolError::Locked { folder: self.folder().to_path_buf(), bucket })
            }
            Err(TryLockError::Error(error)) => Err(error).context("lock", &path),
        }
    }

    /// The names of messages in a state. Other files are ignored.
    pub(super) fn names(&self, state: State) -> Result<Vec<FileName>, SpoolError> {
        let mut names = Vec::new();
        self.walk(state, |name| {
            names.push(name);
            Ok(())
        })?;
        Ok(names)
    }

    /// Calls `with` for each message in a state, without collecting them.
    pub(super) fn walk(
        &self,
        state: State,
        mut with: impl FnMut(FileName) -> Result<(), SpoolError>,
    ) -> Result<(), SpoolError> {
        let folder = self.dir(state.folder());
        durable_fs::walk(&folder, |name| name.parse().map_or(Ok(()), &mut with))
    }
}

impl Shard {
    /// The spool.
    pub fn spool(&self) -> &Spool {
        &self.spool
    }

    /// Restricts the shard to keys with this prefix.
    #[must_use]
    pub fn with_key_prefix(self, keys: MessageKey) -> Self {
        Self { only: Some(keys), ..self }
    }

    /// Whether a message belongs to the shard.
    pub(super) fn has(&self, name: &FileName) -> bool {
        self.has_key(&name.key)
    }

    pub(super) fn has_key(&self, key: &MessageKey) -> bool {
        let wanted = self.only.as_ref().is_none_or(|only| key.has_prefix(only));
        wanted && self.share.contains(key.bucket())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_whole_and_do_not_overlap() {
        for of in 1..=BUCKETS {
            for bucket in 0..BUCKETS {
                let having = (0..of).filter(|part| Share::new(*part, of).expect("a share").contains(bucket));
                assert_eq!(having.count(), 1, "bucket {bucket} of {of} shares");
            }
        }
        for text in ["", "1", "1/1", "0/0", "0/17", "-1/2", "a/b", "0/2/3"] {
            assert_eq!(text.parse::<Share>(), Err(ParseShareError), "{text}");
        }
        assert_eq!("3/4".parse(), Share::new(3, 4));
    }
}
