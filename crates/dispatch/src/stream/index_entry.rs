//! Index entry: where a piece of output is, and which run it belongs to. All entries have the same
//! length, so that a damaged one does not hide the next.

use longshore::UnitId;
use longshore::worker_session::Lease;
use sha2::{Digest, Sha256};

/// First bytes of every entry.
const MAGIC: [u8; 4] = *b"LSo1";
/// Offset of the entry's own checksum.
const CHECKSUM_OFFSET: usize = IndexEntry::LENGTH - 4;
/// Marks a run that is not part of an array.
const NO_INDEX: u64 = u64::MAX;

/// Output channel of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputChannel {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Location of a piece of output, and the run that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// The unit's lease.
    pub lease: Lease,
    /// Attempt number.
    pub attempt: u32,
    /// [`batch_hash`] of the array; 0 for a single script.
    pub batch: u64,
    /// Index in the array.
    pub index: Option<u64>,
    /// Output channel.
    pub channel: OutputChannel,
    /// Whether this is the last piece of its run.
    pub last: bool,
    /// Offset of the piece in the data file.
    pub offset: u64,
    /// Length of the piece.
    pub length: u32,
    /// CRC-32 of the piece.
    pub sum: u32,
}

impl IndexEntry {
    /// Length of an entry in bytes.
    pub const LENGTH: usize = 72;

    /// Encodes the entry.
    pub fn to_bytes(&self) -> [u8; Self::LENGTH] {
        let mut bytes = Vec::with_capacity(Self::LENGTH);
        bytes.extend(MAGIC);
        bytes.extend(self.lease.unit.as_bytes());
        let index = self.index.unwrap_or(NO_INDEX);
        for number in [self.lease.fence, self.batch, index, self.offset] {
            bytes.extend(number.to_le_bytes());
        }
        for number in [self.length, self.sum, self.attempt] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend([u8::from(self.channel == OutputChannel::Stderr), u8::from(self.last), 0, 0]);
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        let mut encoded = [0; Self::LENGTH];
        encoded.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        encoded
    }

    /// Decodes an entry. Returns `None` if the bytes are not an entry or are damaged.
    pub fn from_bytes(bytes: &[u8; Self::LENGTH]) -> Option<Self> {
        let mut reader = ByteReader(bytes.as_slice());
        if reader.take()? != MAGIC {
            return None;
        }
        let sum = u32::from_le_bytes(ByteReader(bytes.get(CHECKSUM_OFFSET..)?).take()?);
        if sum != crc32fast::hash(bytes.get(..CHECKSUM_OFFSET)?) {
            return None;
        }
        let unit = UnitId::from_bytes(reader.take()?);
        let [fence, batch, index, offset] = [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?];
        let [length, sum, attempt] = [reader.u32()?, reader.u32()?, reader.u32()?];
        let [channel, last, _, _] = reader.take()?;
        Some(Self {
            lease: Lease { unit, fence },
            attempt,
            batch,
            index: Some(index).filter(|index| *index != NO_INDEX),
            channel: if channel == 1 { OutputChannel::Stderr } else { OutputChannel::Stdout },
            last: last == 1,
            offset,
            length,
            sum,
        })
    }
}

/// The bytes of an entry that are not decoded yet.
struct ByteReader<'a>(&'a [u8]);

impl ByteReader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, reader) = self.0.split_first_chunk()?;
        self.0 = reader;
        Some(*first)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
}

/// Hash of an array's name, as index entries store it.
pub fn batch_hash(name: Option<&str>) -> u64 {
    let Some(name) = name else { return 0 };
    let digest = Sha256::digest(name.as_bytes());
    let hash = digest.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> IndexEntry {
        IndexEntry {
            lease: Lease { unit: UnitId::new(), fence: 7 },
            attempt: 2,
            batch: batch_hash(Some("nightly")),
            index: Some(41),
            channel: OutputChannel::Stderr,
            last: true,
            offset: 1 << 40,
            length: 12,
            sum: crc32fast::hash(b"hello, world"),
        }
    }

    #[test]
    fn the_checksum_is_the_one_that_everybody_has() {
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let lone =
            IndexEntry { index: None, batch: 0, channel: OutputChannel::Stdout, last: false, ..entry() };
        for entry in [entry(), lone] {
            assert_eq!(IndexEntry::from_bytes(&entry.to_bytes()), Some(entry));
        }
    }

    #[test]
    fn an_entry_with_any_bit_changed_is_none() {
        let bytes = entry().to_bytes();
        for at in 0..IndexEntry::LENGTH * 8 {
            let mut changed = bytes;
            changed[at / 8] ^= 1 << (at % 8);
            assert_eq!(IndexEntry::from_bytes(&changed), None, "bit {at}");
        }
    }
}
