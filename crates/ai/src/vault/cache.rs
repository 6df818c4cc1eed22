//! Cache of opened keys: a call should not wait for the store or the disk to get its key.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore::TenantId;
use secrecy::SecretString;
use tokio::time::Instant;

use super::reference::KeyRef;

/// Longest time that an opened key is cached: so long a process that missed the notification may
/// use a revoked key.
pub(super) const CACHE_TTL: Duration = Duration::from_secs(60);

/// Cached keys. Further keys are opened on every use, which is slower, not wrong.
const MAX_CACHED: usize = 10_000;

/// Owner and reference of a key.
pub(super) type CacheKey = (TenantId, KeyRef);

/// Opened keys. Evicted secrets are wiped.
#[derive(Default)]
pub(super) struct Cache {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    secrets: HashMap<CacheKey, CachedSecret>,
    /// Incremented by `clear`. A key that was read before must not be cached after.
    epoch: u64,
}

struct CachedSecret {
    secret: SecretString,
    until: Instant,
}

impl State {
    /// Evicts, and so wipes, keys that may not be used any more.
    fn evict_expired(&mut self, now: Instant) {
        self.secrets.retain(|_, cached| now < cached.until);
    }
}

impl Cache {
    /// A cached key that has not expired.
    pub(super) fn find(&self, key: &CacheKey) -> Option<SecretString> {
        let (mut state, now) = (self.state(), Instant::now());
        let cached = state.secrets.get(key)?;
        if now < cached.until {
            return Some(cached.secret.clone());
        }
        state.evict_expired(now);
        None
    }

    /// The epoch to pass to [`Self::insert`].
    pub(super) fn epoch(&self) -> u64 {
        self.state().epoch
    }

    /// Caches a key that was read in `epoch`, for as long as it may be used, at most [`CACHE_TTL`].
    pub(super) fn insert(&self, epoch: u64, key: CacheKey, secret: &SecretString, ttl: Duration) {
        let now = Instant::now();
        let mut state = self.state();
        if state.epoch != epoch {
            return;
        }
        state.evict_expired(now);
        if state.secrets.len() < MAX_CACHED {
            let until = now + ttl.min(CACHE_TTL);
            state.secrets.insert(key, CachedSecret { secret: secret.clone(), until });
        }
    }

    /// Evicts everything.
    pub(super) fn clear(&self) {
        let mut state = self.state();
        state.epoch += 1;
        state.secrets.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_expired_key_does_not_stay_in_memory() {
        let cache = Cache::default();
        let key = |name: &str| (TenantId::default(), name.parse::<KeyRef>().unwrap());
        let secret = SecretString::from("sk-secret");
        let count = || cache.state().secrets.len();
        cache.insert(0, key("one"), &secret, CACHE_TTL);
        tokio::time::advance(CACHE_TTL).await;
        assert_eq!((cache.find(&key("one")).is_none(), count()), (true, 0), "evicted where it is missed");
        cache.insert(0, key("two"), &secret, CACHE_TTL);
        tokio::time::advance(CACHE_TTL).await;
        cache.insert(0, key("three"), &secret, CACHE_TTL);
        assert_eq!((cache.find(&key("three")).is_some(), count()), (true, 1), "evicted by the next one");
    }
}
