//! Locks that end with their transaction (advisory, transaction level: poolers allow them).
//!
//! Taken in the order of their numbers, all at once, so that two transactions cannot wait for each
//! other. Two things that happen to share a number merely wait for each other needlessly.

use longshore_core::Result;

use crate::tx::Tx;

/// What is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AdvisoryLock<'k> {
    /// Migrations.
    Schema,
    /// The order of the change feed.
    ChangeFeed,
    /// Folding of counts.
    Rollup,
    /// Room in a bounded queue: senders count and fill it one after the other.
    QueueCapacity(i64),
    /// Room of a bounded tenant.
    TenantCapacity(&'k str),
    /// Room in a bounded lane.
    LaneCapacity(i64),
    /// Claims from a capped lane.
    LaneCap(i64),
    /// Claims for a capped tenant.
    TenantCap(&'k str),
    /// Claims and ends of units with a cap key.
    CapKey(&'k [u8]),
    /// A tenant's budget: admissions that are weighed against it, and changes of it.
    Budget(&'k str),
    /// A tenant's request: who admits a call for it sees all calls for it.
    Request(&'k str, &'k str),
}

/// `longshore` in the space of advisory locks that all programs of a database share.
const KEY_PREFIX: i64 = 0x6c73_0000_0000_0000;

/// As many locks as the server surely has room for: a long list of requests must not fill its table.
const MAX_REQUEST_LOCKS: i64 = 4096;

impl AdvisoryLock<'_> {
    /// Its number: what kind of thing, and which.
    pub(crate) fn key(self) -> i64 {
        let (kind, which) = match self {
            Self::Schema => (0, 0),
            Self::ChangeFeed => (1, 0),
            Self::Rollup => (2, 0),
            Self::QueueCapacity(num) => (3, hash(&num.to_le_bytes())),
            Self::TenantCapacity(name) => (4, hash(name.as_bytes())),
            Self::LaneCapacity(num) => (5, hash(&num.to_le_bytes())),
            Self::LaneCap(num) => (6, hash(&num.to_le_bytes())),
            Self::TenantCap(name) => (7, hash(name.as_bytes())),
            Self::CapKey(key) => (8, hash(key)),
            Self::Budget(tenant) => (9, hash(tenant.as_bytes())),
            Self::Request(tenant, id) => {
                (10, hash(format!("{tenant}/{id}").as_bytes()) % MAX_REQUEST_LOCKS)
            }
        };
        KEY_PREFIX | (kind << 40) | which
    }
}

/// FNV-1a, folded to 40 bits: stable across versions, which share a database.
fn hash(bytes: &[u8]) -> i64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    i64::try_from((hash ^ (hash >> 40)) & 0xff_ffff_ffff).unwrap_or(0)
}

/// The numbers of locks, in the order in which everybody takes them.
pub(crate) fn sorted_keys<'k>(locks: impl Iterator<Item = AdvisoryLock<'k>>) -> Vec<i64> {
    let mut keys: Vec<i64> = locks.map(AdvisoryLock::key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Waits for all of `locks`.
pub(crate) async fn acquire(tx: &mut Tx<'_>, locks: &[AdvisoryLock<'_>]) -> Result<()> {
    if locks.is_empty() {
        return Ok(());
    }
    let keys = sorted_keys(locks.iter().copied());
    // The order of unnest is that of the array.
    tx.query("SELECT pg_advisory_xact_lock(n) FROM unnest($1) n", &[&keys]).await?;
    Ok(())
}

/// Takes a lock if nobody has it.
pub(crate) async fn try_acquire(tx: &mut Tx<'_>, lock: AdvisoryLock<'_>) -> Result<bool> {
    let row = tx.query_one("SELECT pg_try_advisory_xact_lock($1)", &[&lock.key()]).await?;
    Ok(row.get(0))
}
