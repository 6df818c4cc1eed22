//! Who may send which messages: one sender per bucket, by a lock that dies with its holder.

use std::fs::{File, TryLockError};
use std::str::FromStr;

use super::error::{SpoolError, Tried};
use super::look::Looks;
use super::name::{BUCKETS, FileName, Key};
use super::{Spool, State, disk};

/// A part of the messages: those whose bucket, divided by `of`, leaves `part`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    part: u8,
    of: u8,
}

/// What is no share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a share is written as 0/4: a part, and of how many; there are 1 to {BUCKETS}")]
pub struct NotAShare;

impl Share {
    /// All messages.
    pub const ALL: Self = Self { part: 0, of: 1 };

    /// Part number `part`, from 0, of `of`.
    pub fn new(part: u8, of: u8) -> Result<Self, NotAShare> {
        match part < of && of <= BUCKETS {
            true => Ok(Self { part, of }),
            false => Err(NotAShare),
        }
    }

    fn has(self, bucket: u8) -> bool {
        bucket % self.of == self.part
    }
}

impl FromStr for Share {
    type Err = NotAShare;

    fn from_str(text: &str) -> Result<Self, NotAShare> {
        let (part, of) = text.split_once('/').ok_or(NotAShare)?;
        let number = |text: &str| text.parse().map_err(|_| NotAShare);
        Self::new(number(part)?, number(of)?)
    }
}

/// The right to send a share of a spool's messages. Nobody else has it while this lives.
#[derive(Debug)]
pub struct Shard {
    pub(super) spool: Spool,
    share: Share,
    only: Option<Key>,
    pub(super) looks: Looks,
    /// Let go by the system when we are gone, however we went.
    _locks: Vec<File>,
}

impl Spool {
    /// The right to send a share; an error if another sender has any of it. Shares may be cut in any way:
    /// what overlaps is refused.
    pub fn shard(&self, share: Share) -> Result<Shard, SpoolError> {
        let buckets = (0..BUCKETS).filter(|bucket| share.has(*bucket));
        let locks = buckets.map(|bucket| self.lock(bucket)).collect::<Result<Vec<_>, _>>()?;
        let (looks, only) = (Looks::default(), None);
        Ok(Shard { spool: self.clone(), share, only, looks, _locks: locks })
    }

    /// The lock of a bucket; the one behind the last is for whoever prunes.
    pub(super) fn lock(&self, bucket: u8) -> Result<File, SpoolError> {
        let path = self.within("locks").join(bucket.to_string());
        let file = File::options().create(true).append(true).open(&path).tried("open", &path)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                Err(SpoolError::Taken { folder: self.folder().to_path_buf(), bucket })
            }
            Err(TryLockError::Error(error)) => Err(error).tried("lock", &path),
        }
    }

    /// The names of messages in a state; what is no name is none of ours.
    pub(super) fn names(&self, state: State) -> Result<Vec<FileName>, SpoolError> {
        let mut names = Vec::new();
        self.walk(state, |name| {
            names.push(name);
            Ok(())
        })?;
        Ok(names)
    }

    /// The same one by one.
    pub(super) fn walk(
        &self,
        state: State,
        mut with: impl FnMut(FileName) -> Result<(), SpoolError>,
    ) -> Result<(), SpoolError> {
        let folder = self.within(state.folder());
        disk::walk(&folder, |name| name.parse().map_or(Ok(()), &mut with))
    }
}

impl Shard {
    /// The spool.
    pub fn spool(&self) -> &Spool {
        &self.spool
    }

    /// Of its messages, only those whose keys begin like this one.
    #[must_use]
    pub fn only(self, keys: Key) -> Self {
        Self { only: Some(keys), ..self }
    }

    /// Whether a message is in it.
    pub(super) fn has(&self, name: &FileName) -> bool {
        self.has_key(&name.key)
    }

    pub(super) fn has_key(&self, key: &Key) -> bool {
        let wanted = self.only.as_ref().is_none_or(|only| key.begins_with(only));
        wanted && self.share.has(key.bucket())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_whole_and_do_not_overlap() {
        for of in 1..=BUCKETS {
            for bucket in 0..BUCKETS {
                let having =
                    (0..of).filter(|part| Share::new(*part, of).expect("a share").has(bucket));
                assert_eq!(having.count(), 1, "bucket {bucket} of {of} shares");
            }
        }
        for text in ["", "1", "1/1", "0/0", "0/17", "-1/2", "a/b", "0/2/3"] {
            assert_eq!(text.parse::<Share>(), Err(NotAShare), "{text}");
        }
        assert_eq!("3/4".parse(), Share::new(3, 4));
    }
}
