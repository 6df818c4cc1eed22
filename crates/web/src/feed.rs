//! The change feed, followed once for all who listen with the same scope.
//!
//! Whoever of them comes first looks for all; should they hang up, the next one goes on. So a thousand
//! open pages cost the store as much as one. What was seen last is kept for those who come a little
//! later; who is further behind reads for themselves until they have caught up.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use longshore::store::ChangeSet;
use longshore::{Result, Scope, Store, TenantId};
use tokio::sync::{Mutex as Turn, watch};

/// Between two looks, if nothing changes.
const BREATH: Duration = Duration::from_secs(15);
/// Between two looks: a busy store changes all the time, and nobody reads that fast.
const GAP: Duration = Duration::from_millis(250);
/// Looks that are kept.
const KEPT: usize = 16;

/// Followers by scope; `None` is all tenants. They live as long as somebody listens.
#[derive(Default)]
pub(crate) struct Feeds(Mutex<HashMap<Option<TenantId>, Weak<Feed>>>);

impl Feeds {
    /// The follower of a scope.
    pub(crate) fn of(&self, scope: &Scope) -> Arc<Feed> {
        let key = match scope {
            Scope::All => None,
            Scope::Tenant(tenant) => Some(tenant.clone()),
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(feed) = all.get(&key).and_then(Weak::upgrade) {
            return feed;
        }
        all.retain(|_, feed| feed.strong_count() > 0);
        let feed = Arc::new(Feed::new(scope.clone()));
        all.insert(key, Arc::downgrade(&feed));
        feed
    }
}

/// A look: from where it went on, and what it found.
type Look = (u64, Arc<ChangeSet>);

/// One follower.
pub(crate) struct Feed {
    scope: Scope,
    /// Whose turn it is to look.
    turn: Turn<()>,
    /// The last looks, each going on where the one before ended.
    looks: watch::Sender<VecDeque<Look>>,
}

impl Feed {
    fn new(scope: Scope) -> Self {
        Self { scope, turn: Turn::default(), looks: watch::Sender::new(VecDeque::new()) }
    }

    /// What changed after `since`, as soon as something did; empty if nothing does for a while.
    pub(crate) async fn next(&self, store: &dyn Store, since: u64) -> Result<Arc<ChangeSet>> {
        let mut looks = self.looks.subscribe();
        let mut is_told = false;
        loop {
            let (known, end) = {
                let looks = looks.borrow_and_update();
                // Who stands within a look is told all of it: to hear of something twice does no harm.
                let known =
                    looks.iter().find(|(from, found)| (*from..found.cursor).contains(&since));
                (
                    known.map(|(_, found)| Arc::clone(found)),
                    looks.back().map(|(_, last)| last.cursor),
                )
            };
            if let Some(found) = known {
                return Ok(found);
            }
            if end.is_some_and(|end| since < end) {
                // Behind the others, and not at one of their steps.
                let found = store.changes(&self.scope, since, Duration::ZERO).await?;
                return Ok(Arc::new(found));
            }
            if is_told {
                // They found nothing: now we know that there is nothing for us either.
                return Ok(Arc::new(ChangeSet { cursor: since, ..ChangeSet::default() }));
            }
            tokio::select! {
                // Somebody else has looked. The sender is ours, so it is there.
                _ = looks.changed() => is_told = true,
                _turn = self.turn.lock() => {
                    // They may have looked while we waited for the turn.
                    is_told = looks.has_changed().unwrap_or(false);
                    if !is_told {
                        return self.look(store, since).await;
                    }
                }
            }
        }
    }

    async fn look(&self, store: &dyn Store, since: u64) -> Result<Arc<ChangeSet>> {
        let found = Arc::new(store.changes(&self.scope, since, BREATH).await?);
        tokio::time::sleep(GAP).await;
        self.looks.send_modify(|looks| {
            // A look that found nothing leads nowhere; those who wait hear of it all the same.
            if found.cursor <= since {
                return;
            }
            // What does not go on from the last look leaves a gap: then nothing before it counts.
            if looks.back().is_some_and(|(_, last)| last.cursor != since) {
                looks.clear();
            }
            looks.push_back((since, Arc::clone(&found)));
            if looks.len() > KEPT {
                looks.pop_front();
            }
        });
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use longshore::store::{Inspect, Intake};
    use longshore::{Kind, MemoryStore, NewUnit};
    use serde_json::json;

    use super::*;

    async fn send(store: &MemoryStore) {
        let unit = NewUnit::new(Kind::new("k").unwrap(), json!(1));
        store.send(&Scope::All, vec![unit]).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_listen_hear_the_same_from_one_look() {
        let (store, feeds) = (MemoryStore::default(), Feeds::default());
        let begin = store.changes(&Scope::All, u64::MAX, Duration::ZERO).await.unwrap().cursor;
        let feed = feeds.of(&Scope::All);
        let listening = (0..100).map(|_| feed.next(&store, begin));
        let (heard, ()) = tokio::join!(futures_util::future::join_all(listening), send(&store));
        let first = heard[0].as_ref().unwrap();
        assert!(!first.changes.is_empty());
        assert!(heard.iter().all(|other| Arc::ptr_eq(other.as_ref().unwrap(), first)));
    }

    #[tokio::test(start_paused = true)]
    async fn when_who_looks_hangs_up_the_next_one_looks() {
        let (store, feeds) = (MemoryStore::default(), Feeds::default());
        let begin = store.changes(&Scope::All, u64::MAX, Duration::ZERO).await.unwrap().cursor;
        let feed = feeds.of(&Scope::All);
        let short = Duration::from_millis(1);
        assert!(tokio::time::timeout(short, feed.next(&store, begin)).await.is_err());
        let (heard, ()) = tokio::join!(feed.next(&store, begin), send(&store));
        assert!(!heard.unwrap().changes.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_late_misses_nothing() {
        let (store, feeds) = (MemoryStore::default(), Feeds::default());
        let begin = store.changes(&Scope::All, u64::MAX, Duration::ZERO).await.unwrap().cursor;
        let feed = feeds.of(&Scope::All);
        let mut at = begin;
        for _ in 0..KEPT + 5 {
            send(&store).await;
            at = feed.next(&store, at).await.unwrap().cursor;
        }
        let mut late = begin;
        while late < at {
            let next = feed.next(&store, late).await.unwrap();
            assert!(next.cursor > late && !next.missed);
            late = next.cursor;
        }
        assert_eq!(late, at);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_silence_is_broken_for_all() {
        let (store, feeds) = (MemoryStore::default(), Feeds::default());
        let begin = store.changes(&Scope::All, u64::MAX, Duration::ZERO).await.unwrap().cursor;
        let feed = feeds.of(&Scope::All);
        for _ in 0..3 {
            let (one, other) = tokio::join!(feed.next(&store, begin), feed.next(&store, begin));
            assert!(one.unwrap().changes.is_empty() && other.unwrap().changes.is_empty());
        }
        send(&store).await;
        assert!(!feed.next(&store, begin).await.unwrap().changes.is_empty());
    }

    #[tokio::test]
    async fn a_follower_is_forgotten_with_its_last_listener() {
        let feeds = Feeds::default();
        let one = feeds.of(&Scope::All);
        assert!(Arc::ptr_eq(&one, &feeds.of(&Scope::All)));
        drop(one);
        feeds.of(&Scope::Tenant(TenantId::default()));
        assert_eq!(feeds.0.lock().unwrap().len(), 1);
    }
}
