//! Shares one poll of the store's change feed between all listeners with the same scope.
//!
//! One listener polls the store for all of them; if it disconnects, another one takes over. So a thousand
//! open pages cost the store as much as one. The last polls are kept for listeners that are slightly behind;
//! a listener that is further behind reads from the store until it has caught up.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use longshore::store::ChangeSet;
use longshore::{Result, Scope, Store, TenantId};
use tokio::sync::{Mutex as AsyncMutex, watch};

/// How long a poll waits for a change.
const POLL_TIMEOUT: Duration = Duration::from_secs(15);
/// Minimum interval between polls: a busy store changes all the time, and users cannot read that fast.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Number of polls that are kept.
const MAX_POLLS: usize = 16;

/// Broadcasts by scope; `None` is all tenants. Each lives as long as it has a listener.
#[derive(Default)]
pub(crate) struct ChangeBroadcasts(Mutex<HashMap<Option<TenantId>, Weak<ChangeBroadcast>>>);

impl ChangeBroadcasts {
    /// The broadcast of a scope.
    pub(crate) fn of(&self, scope: &Scope) -> Arc<ChangeBroadcast> {
        let key = scope.tenant().cloned();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(broadcast) = all.get(&key).and_then(Weak::upgrade) {
            return broadcast;
        }
        all.retain(|_, broadcast| broadcast.strong_count() > 0);
        let broadcast = Arc::new(ChangeBroadcast::new(scope.clone()));
        all.insert(key, Arc::downgrade(&broadcast));
        broadcast
    }
}

/// The result of a poll: the cursor it started from, and the changes.
type Poll = (u64, Arc<ChangeSet>);

/// The broadcast of one scope.
pub(crate) struct ChangeBroadcast {
    scope: Scope,
    /// Held by the listener that polls.
    poll_lock: AsyncMutex<()>,
    /// The last polls, each starting at the cursor where the previous one ended.
    polls: watch::Sender<VecDeque<Poll>>,
}

impl ChangeBroadcast {
    fn new(scope: Scope) -> Self {
        Self { scope, poll_lock: AsyncMutex::default(), polls: watch::Sender::new(VecDeque::new()) }
    }

    /// Waits for changes after `since`; empty after a while without any.
    pub(crate) async fn next(&self, store: &dyn Store, since: u64) -> Result<Arc<ChangeSet>> {
        let mut polls = self.polls.subscribe();
        let mut is_notified = false;
        loop {
            let (covering, end) = {
                let polls = polls.borrow_and_update();
                // A listener with a cursor inside a poll's range gets all of it: reporting a change twice
                // does no harm.
                let covering = polls.iter().find(|(from, found)| (*from..found.cursor).contains(&since));
                (covering.map(|(_, found)| Arc::clone(found)), polls.back().map(|(_, last)| last.cursor))
            };
            if let Some(found) = covering {
                return Ok(found);
            }
            if end.is_some_and(|end| since < end) {
                // Older than the kept polls.
                let found = store.changes(&self.scope, since, Duration::ZERO).await?;
                return Ok(Arc::new(found));
            }
            if is_notified {
                // The other listener's poll found nothing, so there is nothing for this one.
                return Ok(Arc::new(ChangeSet { cursor: since, ..ChangeSet::default() }));
            }
            tokio::select! {
                // Another listener has polled. The sender is ours, so the channel is open.
                _ = polls.changed() => is_notified = true,
                _guard = self.poll_lock.lock() => {
                    // Another listener may have polled while this one waited for the lock.
                    is_notified = polls.has_changed().unwrap_or(false);
                    if !is_notified {
                        return self.poll(store, since).await;
                    }
                }
            }
        }
    }

    async fn poll(&self, store: &dyn Store, since: u64) -> Result<Arc<ChangeSet>> {
        let found = Arc::new(store.changes(&self.scope, since, POLL_TIMEOUT).await?);
        tokio::time::sleep(MIN_POLL_INTERVAL).await;
        self.polls.send_modify(|polls| {
            // A poll without changes is not kept; waiting listeners are notified all the same.
            if found.cursor <= since {
                return;
            }
            // A poll that does not continue the last one leaves a gap: drop the earlier ones.
            if polls.back().is_some_and(|(_, last)| last.cursor != since) {
                polls.clear();
            }
            polls.push_back((since, Arc::clone(&found)));
            if polls.len() > MAX_POLLS {
                polls.pop_front();
            }
        });
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use longshore::store::{Enqueue, Queries};
    use longshore::{Kind, MemoryStore, NewUnit};
    use serde_json::json;

    use super::*;

    async fn send(store: &MemoryStore) {
        let unit = NewUnit::new(Kind::new("k").unwrap(), json!(1));
        store.send(&Scope::All, vec![unit]).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_listen_hear_the_same_from_one_look() {
        let (store, broadcasts) = (MemoryStore::default(), ChangeBroadcasts::default());
        let begin = store.changes(&Scope::All, u64::MAX, Duration::ZERO).await.unwrap().cursor;
        let broadcast = broadcasts.of(&Scope::All);
        let listening = (0..100).map(|_| broadcast.next(&store, begin));
        let (received, ()) = tokio::join!(futures_util::future::join_all(listening), send(&store));
        let first = received[0].as_ref().unwrap();
        assert!(!first.changes.is_empty());
        assert!(received.iter().all(|other| Arc::ptr_eq(other.as_ref().unwrap(), first)));
    }

    #[tokio::test(start_paused = true)]
    async fn when_who_looks_hangs_up_the_next_one_looks() {
        let (store, broadcasts) = (MemoryStore::default(), ChangeBroadcasts::default());
        let begin = store.changes(&Scope::All, u64::MAX, Duration::ZERO).await.unwrap().cursor;
        let broadcast = broadcasts.of(&Scope::All);
        let short = Duration::from_millis(1);
        assert!(tokio::time::timeout(short, broadcast.next(&store, begin)).await.is_err());
        let (received, ()) = tokio::join!(broadcast.next(&store, begin), send(&store));
        assert!(!received.unwrap().changes.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_late_misses_nothing() {
        let (store, broadcasts) = (MemoryStore::default(), ChangeBroadcasts::default());
        let begin = store.changes(&Scope::All, u64::MAX, Duration::ZERO).await.unwrap().cursor;
        let broadcast = broadcasts.of(&Scope::All);
        let mut at = begin;
        for _ in 0..MAX_POLLS + 5 {
            send(&store).await;
            at = broadcast.next(&store, at).await.unwrap().cursor;
        }
        let mut late = begin;
        while late < at {
            let next = broadcast.next(&store, late).await.unwrap();
            assert!(next.cursor > late && !next.missed);
            late = next.cursor;
        }
        assert_eq!(late, at);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_silence_is_broken_for_all() {
        let (store, broadcasts) = (MemoryStore::default(), ChangeBroadcasts::default());
        let begin = store.changes(&Scope::All, u64::MAX, Duration::ZERO).await.unwrap().cursor;
        let broadcast = broadcasts.of(&Scope::All);
        for _ in 0..3 {
            let (one, other) = tokio::join!(broadcast.next(&store, begin), broadcast.next(&store, begin));
            assert!(one.unwrap().changes.is_empty() && other.unwrap().changes.is_empty());
        }
        send(&store).await;
        assert!(!broadcast.next(&store, begin).await.unwrap().changes.is_empty());
    }

    #[tokio::test]
    async fn a_follower_is_forgotten_with_its_last_listener() {
        let broadcasts = ChangeBroadcasts::default();
        let one = broadcasts.of(&Scope::All);
        assert!(Arc::ptr_eq(&one, &broadcasts.of(&Scope::All)));
        drop(one);
        broadcasts.of(&Scope::Tenant(TenantId::default()));
        assert_eq!(broadcasts.0.lock().unwrap().len(), 1);
    }
}
