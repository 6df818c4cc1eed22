//! Randomness that a simulation can repeat.

use std::cell::Cell;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};

use longshore_core::SessionId;

thread_local! {
    /// The state of repeatable randomness; see [`seed_randomness`].
    static SEEDED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Makes all waits and session ids of this thread repeatable: for simulations on paused time.
#[doc(hidden)]
pub fn seed_randomness(seed: u64) {
    SEEDED.set(Some(seed));
}

/// A random number.
pub(crate) fn random() -> u64 {
    // Each RandomState has its own keys: random enough to spread waits, without a dependency.
    next_seeded().unwrap_or_else(|| RandomState::new().hash_one(0_u8))
}

/// An id for a new session.
pub(crate) fn new_session_id() -> SessionId {
    next_seeded()
        .map_or_else(SessionId::new, |number| SessionId::from_bytes(u128::from(number).to_be_bytes()))
}

fn next_seeded() -> Option<u64> {
    let seed = SEEDED.get()?;
    SEEDED.set(Some(seed.wrapping_add(1)));
    let mut hasher = DefaultHasher::new();
    seed.hash(&mut hasher);
    Some(hasher.finish())
}
