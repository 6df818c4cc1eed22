//! Opened keys, kept for a minute: a call should not wait for the store or the disk to have its key.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore::TenantId;
use secrecy::SecretString;
use tokio::time::Instant;

use super::reference::KeyRef;

/// How long an opened key is kept, at most: so long a revoked one may still be used by a process
/// that did not hear of it.
pub(super) const KEEP: Duration = Duration::from_secs(60);

/// How many are kept. More are opened each time, which is slower, not wrong.
const MOST: usize = 10_000;

/// Whose key, and where it is.
pub(super) type Place = (TenantId, KeyRef);

/// Opened keys. What is forgotten is wiped.
#[derive(Default)]
pub(super) struct Cache {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    kept: HashMap<Place, Kept>,
    /// Moves when all is forgotten. What was read from the store before must not be kept after.
    epoch: u64,
}

struct Kept {
    secret: SecretString,
    until: Instant,
}

impl Cache {
    /// A key that is still good.
    pub(super) fn find(&self, place: &Place) -> Option<SecretString> {
        let state = self.state();
        let kept = state.kept.get(place).filter(|kept| Instant::now() < kept.until)?;
        Some(kept.secret.clone())
    }

    /// What [`Self::keep`] is to be told.
    pub(super) fn epoch(&self) -> u64 {
        self.state().epoch
    }

    /// Keeps a key that was read in `epoch`, for as long as it may be used but not for too long.
    pub(super) fn keep(&self, epoch: u64, place: Place, secret: &SecretString, most: Duration) {
        let now = Instant::now();
        let mut state = self.state();
        if state.epoch != epoch {
            return;
        }
        if state.kept.len() >= MOST {
            state.kept.retain(|_, kept| now < kept.until);
        }
        if state.kept.len() < MOST {
            let until = now + most.min(KEEP);
            state.kept.insert(place, Kept { secret: secret.clone(), until });
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        let mut state = self.state();
        state.epoch += 1;
        state.kept.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
