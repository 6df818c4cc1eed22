//! Locks, atomics and threads of the pool's core: the standard library's, or shuttle's when the
//! shuttle tests run (crates/pool/shuttle).

#[cfg(not(all(test, feature = "_shuttle")))]
pub(crate) use std::{
    sync::atomic::{AtomicU64, Ordering},
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};

#[cfg(all(test, feature = "_shuttle"))]
pub(crate) use shuttle::{
    sync::atomic::{AtomicU64, Ordering},
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};

use std::sync::PoisonError;

/// Locks, and ignores poisoning: a panic cannot leave data behind our locks in an inconsistent
/// state.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
