//! Claiming: one call at a time, beside the core, as much as the board wants.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use longshore::session::Lease;
use longshore::store::{Claim, HeldUnit, Queues};
use longshore::{BatchId, Failure, Kind, Outcome, Scope, SessionId, Store, Unit};
use tokio::time::Instant;

use super::bodies::{Bodies, Source};
use crate::board::{Board, Need};
use crate::script::{Item, KIND, Script};
use crate::wire::{Body, Order};

/// The most that one call brings: more would hold up others' commits.
const MOST: u32 = 2048;
/// How long word is waited for that there is something.
const DOZE: Duration = Duration::from_secs(5);
/// How long a store that is away is left alone.
const AWAY: Duration = Duration::from_millis(500);

/// What belongs to a task on the board.
#[derive(Debug)]
pub(super) struct Cargo {
    pub(super) body: u64,
    attempt: u32,
    queued: i64,
    item: Option<Item>,
    /// When it must have ended.
    deadline: Option<Instant>,
}

impl Cargo {
    /// Whether it is no part of an array.
    pub(super) fn is_lone(&self) -> bool {
        self.item.is_none()
    }

    pub(super) fn order(&self, lease: Lease, need: &Need) -> Order {
        Order {
            lease,
            body: self.body,
            attempt: self.attempt,
            queued: self.queued,
            index: self.item.as_ref().map(|item| item.0),
            line: self.item.as_ref().and_then(|item| item.1.clone()),
            threads: need.threads,
            resources: need.resources.clone(),
            time_left: self.deadline.map(|at| at.saturating_duration_since(Instant::now())),
        }
    }
}

/// A unit that is ready for the board.
pub(super) struct Entry {
    pub(super) lease: Lease,
    pub(super) rank: i64,
    pub(super) need: Need,
    pub(super) source: Source,
    pub(super) cargo: Cargo,
}

/// What a claim brought.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) units: Vec<Entry>,
    pub(super) bodies: Vec<(Source, Body)>,
    pub(super) refused: Vec<(Lease, Outcome)>,
}

/// A claim's end: what it brought, and what the store's wake said before it.
struct Claimed {
    taken: Taken,
    seen: u64,
    dry: bool,
}

/// The claims of a server.
pub(super) struct Claims {
    store: Arc<dyn Store>,
    session: SessionId,
    claiming: Option<BoxFuture<'static, Claimed>>,
    /// There was nothing: word that there may be something again.
    waking: Option<BoxFuture<'static, u64>>,
    seen: u64,
}

impl Claims {
    pub(super) fn new(store: Arc<dyn Store>, session: SessionId) -> Self {
        Self { store, session, claiming: None, waking: None, seen: 0 }
    }

    /// Whether nothing is being claimed.
    pub(super) fn is_idle(&self) -> bool {
        self.claiming.is_none()
    }

    /// Begins a claim if the board wants more, there may be more, and none is under way.
    pub(super) fn want(&mut self, board: &Board<Cargo>, bodies: &Bodies) {
        if self.claiming.is_some() || self.waking.is_some() {
            return;
        }
        let (wants, largest) = (board.wants(), board.largest());
        if wants == 0 || largest.threads == 0 {
            return;
        }
        // At least the widest there may be: in the store it would hold up all others.
        let claim = self.claim(wants.max(largest.threads), largest);
        let claim = take(Arc::clone(&self.store), claim, self.seen, bodies.batches());
        self.claiming = Some(Box::pin(claim));
    }

    fn claim(&self, wants: u32, largest: Need) -> Claim {
        let plenty = largest.resources.keys().map(|name| (name.clone(), u32::MAX)).collect();
        Claim {
            session: self.session,
            scope: Scope::All,
            queues: Queues::All,
            batch: None,
            kinds: Kind::new(KIND).into_iter().collect(),
            free: wants.min(MOST),
            slots: largest.threads,
            resources: plenty,
            all_resources: largest.resources,
            ahead: 0,
            // Who must run alone is seen to on the board.
            empty_handed: true,
            except: Vec::new(),
        }
    }

    /// What the claim brought that is under way; nothing, if there may be something again.
    pub(super) async fn next(&mut self) -> Taken {
        tokio::select! {
            claimed = running(&mut self.claiming) => {
                self.claiming = None;
                self.seen = claimed.seen;
                if claimed.dry {
                    let (store, seen) = (Arc::clone(&self.store), self.seen);
                    self.waking = Some(Box::pin(async move { store.wake(seen, DOZE).await }));
                }
                claimed.taken
            }
            seen = running(&mut self.waking) => {
                (self.waking, self.seen) = (None, seen);
                Taken::default()
            }
        }
    }
}

/// A future that may not be there: then never.
pub(super) async fn running<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

async fn take(store: Arc<dyn Store>, claim: Claim, seen: u64, known: HashSet<BatchId>) -> Claimed {
    let seen = store.wake(seen, Duration::ZERO).await;
    match store.claim(claim).await {
        Ok(claimed) => {
            let dry = claimed.units.is_empty();
            Claimed { taken: prepare(&store, claimed.units, known).await, seen, dry }
        }
        Err(error) => {
            tracing::warn!(%error, "nothing can be claimed at the moment");
            tokio::time::sleep(AWAY).await;
            Claimed { taken: Taken::default(), seen, dry: false }
        }
    }
}

/// Makes entries of units, with the bodies that are not `known`.
pub(super) async fn prepare(
    store: &Arc<dyn Store>,
    units: Vec<HeldUnit>,
    mut known: HashSet<BatchId>,
) -> Taken {
    let mut taken = Taken::default();
    for held in units {
        let (entry, body) = match entry(&held.unit, held.lease, held.alone) {
            Ok(entry) => entry,
            Err(problem) => {
                let failure = Failure::new("bad-input", problem);
                taken.refused.push((held.lease, Outcome::Fail(failure)));
                continue;
            }
        };
        if let Source::Batch(batch) = &entry.source
            && !known.contains(batch)
        {
            match body_of(store, batch).await {
                Ok(body) => {
                    known.insert(batch.clone());
                    taken.bodies.push((entry.source.clone(), body));
                }
                Err(outcome) => {
                    taken.refused.push((held.lease, outcome));
                    continue;
                }
            }
        }
        taken.bodies.extend(body.map(|body| (entry.source.clone(), body)));
        taken.units.push(entry);
    }
    taken
}

async fn body_of(store: &Arc<dyn Store>, batch: &BatchId) -> Result<Body, Outcome> {
    let bad = |words: String| Outcome::Fail(Failure::new("bad-input", words));
    let definition = store.definition(&Scope::All, batch).await;
    // A store that is away: the unit comes again.
    let definition = definition.map_err(|_| Outcome::Snooze(AWAY))?;
    let definition =
        definition.ok_or_else(|| bad(format!("array `{batch}` does not say what is run")))?;
    let script = definition.parse();
    let script = script.map_err(|error| bad(format!("array `{batch}` is no script: {error}")))?;
    Ok(Body { script, batch: Some(batch.to_string()) })
}

fn entry(unit: &Unit, lease: Lease, alone: bool) -> Result<(Entry, Option<Body>), String> {
    let item = unit.payload.as_bytes().first() == Some(&b'[');
    let problem = |error: serde_json::Error| format!("its payload is not a script: {error}");
    let (source, item, body) = match (&unit.batch, item) {
        (Some(batch), true) => {
            let item: Item = unit.payload.parse().map_err(problem)?;
            (Source::Batch(batch.clone()), Some(item), None)
        }
        _ => {
            let script: Script = unit.payload.parse().map_err(problem)?;
            let batch = unit.batch.as_ref().map(ToString::to_string);
            (Source::Unit(unit.id), None, Some(Body { script, batch }))
        }
    };
    let need = Need { threads: unit.weight.slots, resources: unit.weight.resources.clone(), alone };
    // On the store's clock it was claimed just now.
    let now = unit.started_at.unwrap_or(unit.since);
    let time_left = unit.deadline.map(|deadline| deadline.since(now));
    let cargo = Cargo {
        body: 0,
        attempt: unit.attempt,
        queued: unit.created_at.as_micros(),
        item,
        deadline: time_left.and_then(|left| Instant::now().checked_add(left)),
    };
    let rank = unit.priority.rank(unit.created_at).as_micros();
    Ok((Entry { lease, rank, need, source, cargo }, body))
}
