//! Advisory locks of transaction level: they end with their transaction, and poolers support them.
//!
//! A transaction acquires all its locks at once in the order of their keys, so that two
//! transactions cannot deadlock. If two things share a key, their transactions wait for each other
//! without need.

use longshore_core::Result;

use crate::tx::Tx;

/// What a lock protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AdvisoryLock<'k> {
    /// Migrations.
    Schema,
    /// The order of entries in the change feed.
    ChangeFeed,
    /// The rollup of counters.
    Rollup,
    /// The capacity of a bounded queue: senders count and fill it one after the other.
    QueueCapacity(i64),
    /// The capacity of a bounded tenant.
    TenantCapacity(&'k str),
    /// The capacity of a bounded lane.
    LaneCapacity(i64),
    /// Claims from a capped lane.
    LaneCap(i64),
    /// Claims for a capped tenant.
    TenantCap(&'k str),
    /// Claims and finishes of units with a cap key.
    CapKey(&'k [u8]),
    /// A tenant's budget: admissions that are checked against it, and changes of it.
    Budget(&'k str),
    /// A tenant's request: the admission of a call sees all other calls of the request.
    Request(&'k str, &'k str),
}

/// `longshore`'s range among the advisory locks that all programs of a database share.
const KEY_PREFIX: i64 = 0x6c73_0000_0000_0000;

/// Locks for requests share this many keys: a long list of requests must not fill the server's lock
/// table.
const MAX_REQUEST_LOCKS: i64 = 4096;

impl AdvisoryLock<'_> {
    /// The lock's key: the kind in the upper bits, a hash in the lower.
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
            Self::Request(tenant, id) => (10, hash(format!("{tenant}/{id}").as_bytes()) % MAX_REQUEST_LOCKS),
        };
        KEY_PREFIX | (kind << 40) | which
    }
}

/// FNV-1a, folded to 40 bits. It is stable across versions, which may share a database.
fn hash(bytes: &[u8]) -> i64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    i64::try_from((hash ^ (hash >> 40)) & 0xff_ffff_ffff).unwrap_or(0)
}

/// The keys of locks in the order in which every transaction acquires them.
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
    // `unnest` keeps the array's order.
    tx.query("SELECT pg_advisory_xact_lock(n) FROM unnest($1) n", &[&keys]).await?;
    Ok(())
}

/// Acquires a lock unless another transaction holds it.
pub(crate) async fn try_acquire(tx: &mut Tx<'_>, lock: AdvisoryLock<'_>) -> Result<bool> {
    let row = tx.query_one("SELECT pg_try_advisory_xact_lock($1)", &[&lock.key()]).await?;
    Ok(row.get(0))
}
