//! Takes the steps of a history on both stores, with the same ids.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore_core::batch::BatchAction;
use longshore_core::batch::Sums;
use longshore_core::session::{Lease, NewSession};
use longshore_core::stall::Dead;
use longshore_core::store::Kept;
use longshore_core::store::{
    BatchChunk, Capacity, Claim, Finish, HeldUnit, Promoted, QueueChange, Queues, Retention,
    UnitAction, UnitSelection,
};
use longshore_core::{
    BatchId, Callback, FailureThreshold, Kind, NewBatch, NewUnit, Outcome, Policy, QueueName,
    Scope, SessionId, TenantId, UnitId,
};

use super::compare::{agree, compare, in_short, kind_of_added, with_live};
use super::draw::draw;
use super::{Sketch, Step};
use crate::World;

const ALL: Scope = Scope::All;

/// Runs `history` on both worlds, which must be fresh. Panics where they disagree.
pub async fn histories_agree(oracle: World, subject: World, history: &[Step]) {
    let mut run = Run {
        oracle,
        subject,
        units: vec![],
        sessions: vec![],
        leases: vec![],
        spent: vec![],
        batches: BTreeMap::new(),
    };
    for step in history {
        run.take(step).await;
        run.promote().await;
        compare(&run.oracle, &run.subject, &run.units, run.batches.keys(), step).await;
    }
    for world in [&run.oracle, &run.subject] {
        let violations = world.store.verify().await.unwrap();
        assert!(violations.is_empty(), "{violations:#?}\nafter {history:#?}");
    }
}

/// The same lease, as each store knows it.
#[derive(Clone, Copy)]
struct Pair {
    session: SessionId,
    oracle: Lease,
    subject: Lease,
}

struct Run {
    oracle: World,
    subject: World,
    units: Vec<UnitId>,
    sessions: Vec<SessionId>,
    leases: Vec<Pair>,
    /// Leases that were finished or taken away.
    spent: Vec<Pair>,
    batches: BTreeMap<BatchId, String>,
}

/// Asks both stores the same and returns both answers.
macro_rules! both {
    ($run:expr, $verb:ident($($arg:expr),*)) => {
        ($run.oracle.store.$verb($($arg),*).await, $run.subject.store.$verb($($arg),*).await)
    };
}

impl Run {
    async fn take(&mut self, step: &Step) {
        match step {
            Step::Send(sketches) => self.send(sketches).await,
            Step::OpenBatch { batch, threshold, callback } => {
                self.open_batch(*batch, *threshold, *callback).await;
            }
            Step::AddToBatch { batch, units, stale_cursor } => {
                self.add_to_batch(*batch, units, *stale_cursor).await;
            }
            Step::SealBatch { batch } => {
                // The answers may differ in what is left to promotion, here and in `act`.
                let (oracle, subject) = both!(self, seal_batch(&ALL, &batch_id(*batch)));
                agree("seal", (oracle.map(|b| b.status), subject.map(|b| b.status)));
            }
            Step::ActOnBatch { batch, action } => self.act(*batch, action).await,
            Step::OpenSession => self.open_session().await,
            Step::CloseSession { session } => self.close(*session).await,
            Step::Kill { session } => self.kill(*session).await,
            Step::Adopt { from, to } => self.adopt(*from, *to).await,
            Step::Claim { session, ahead } => self.claim(*session, *ahead).await,
            Step::Start { session } => self.start(*session).await,
            Step::Release { session } => self.release(*session).await,
            Step::Finish { lease, outcome } => self.finish(*lease, outcome).await,
            Step::FinishAgain { lease, outcome } => self.finish_again(*lease, outcome).await,
            Step::Checkpoint { lease } => self.checkpoint(*lease).await,
            Step::Cancel { unit } => self.operate(*unit, UnitAction::Cancel).await,
            Step::Retry { unit } => self.operate(*unit, UnitAction::Retry).await,
            Step::PauseQueue(paused) => {
                self.steer(QueueChange { paused: Some(*paused), capacity: None }).await;
            }
            Step::Bound(units) => {
                let capacity = Some(Capacity { units: *units, bytes: None });
                self.steer(QueueChange { paused: None, capacity }).await;
            }
            Step::PutTenant { tenant, change } => {
                let id = tenant_of(*tenant);
                let (oracle, subject) = both!(self, put_tenant(&ALL, &id, *change));
                agree("put tenant", (oracle.map(with_live), subject.map(with_live)));
            }
            Step::RemoveTenant { tenant } => {
                agree("remove tenant", both!(self, remove_tenant(&ALL, &tenant_of(*tenant))));
            }
            Step::Advance { seconds } => {
                for world in [&self.oracle, &self.subject] {
                    world.clock.advance(seconds_of(*seconds));
                }
            }
            Step::Prune { seconds } => self.prune(*seconds).await,
        }
    }

    /// Stores may leave expiry and sweeping to promotion; afterwards they must agree.
    async fn promote(&self) {
        for world in [&self.oracle, &self.subject] {
            while world.store.promote(1000).await.unwrap() != Promoted::default() {}
        }
    }

    async fn send(&mut self, sketches: &[Sketch]) {
        let units = self.draw(sketches);
        let (oracle, subject) = both!(self, send(&ALL, units.clone()));
        agree("send", (oracle.map(in_short), subject.map(in_short)));
    }

    fn draw(&mut self, sketches: &[Sketch]) -> Vec<NewUnit> {
        let units: Vec<NewUnit> =
            sketches.iter().map(|sketch| draw(sketch, &self.units, self.oracle.now())).collect();
        self.units.extend(units.iter().map(|unit| unit.id));
        units
    }

    async fn open_batch(&mut self, n: u8, threshold: Option<FailureThreshold>, callback: bool) {
        let report = Callback {
            queue: QueueName::new("after").unwrap(),
            kind: Kind::new("report").unwrap(),
            data: serde_json::Value::Null,
        };
        let callback = callback.then_some(report);
        let new = NewBatch { threshold, callback, ..NewBatch::new(batch_id(n)) };
        agree("open batch", both!(self, open_batch(&ALL, new.clone())));
        self.batches.entry(batch_id(n)).or_default();
    }

    async fn add_to_batch(&mut self, n: u8, sketches: &[Sketch], stale: bool) {
        let id = batch_id(n);
        let Some(cursor) = self.batches.get(&id).cloned() else {
            return;
        };
        let mut units = self.draw(sketches);
        units.iter_mut().for_each(|unit| unit.tenant = TenantId::default());
        let expected = if stale { format!("{cursor}?") } else { cursor.clone() };
        let chunk = BatchChunk { expected, next: format!("{cursor}+"), units };
        let answers = both!(self, add_to_batch(&ALL, &id, chunk.clone()));
        agree("add to batch", (answers.0.map(kind_of_added), answers.1.map(kind_of_added)));
        let batch = self.oracle.store.batch(&ALL, &id).await.unwrap();
        self.batches.insert(id, batch.cursor);
    }

    async fn act(&mut self, n: u8, action: &BatchAction) {
        let id = batch_id(n);
        let (oracle, subject) = both!(self, operate_batch(&ALL, &id, action.clone()));
        agree("act", (oracle.map(|b| b.generation), subject.map(|b| b.generation)));
    }

    async fn open_session(&mut self) {
        let session = NewSession {
            id: SessionId::new(),
            label: String::new(),
            version: String::new(),
            kinds: BTreeMap::from([(kind(), Policy::default())]),
            slots: 1000,
            ttl: Duration::from_secs(15),
        };
        self.sessions.push(session.id);
        agree("open session", both!(self, open_session(session.clone())));
    }

    async fn close(&mut self, n: u8) {
        let Some(session) = choose(&self.sessions, n) else {
            return;
        };
        agree("close", both!(self, close_session(session)));
        self.forget(session);
    }

    async fn kill(&mut self, n: u8) {
        let Some(session) = choose(&self.sessions, n) else {
            return;
        };
        agree("reclaim", both!(self, reclaim(&[Dead { session, beats: 0 }])));
        self.forget(session);
    }

    fn forget(&mut self, session: SessionId) {
        self.sessions.retain(|id| *id != session);
        let lost = self.leases.extract_if(.., |pair| pair.session == session);
        self.spent.extend(lost);
    }

    async fn adopt(&mut self, from: u8, to: u8) {
        let (Some(from), Some(to)) = (choose(&self.sessions, from), choose(&self.sessions, to))
        else {
            return;
        };
        if from != to {
            let (oracle, subject) = both!(self, adopt(from, to));
            self.forget(from);
            self.hold(to, oracle.unwrap(), subject.unwrap());
        }
    }

    async fn claim(&mut self, n: u8, ahead: bool) {
        let Some(session) = choose(&self.sessions, n) else {
            return;
        };
        let (free, ahead) = if ahead { (0, 1000) } else { (1000, 0) };
        let claim = Claim {
            session,
            scope: ALL,
            queues: Queues::All,
            batch: None,
            kinds: vec![kind()],
            free,
            slots: 1000,
            resources: BTreeMap::new(),
            all_resources: BTreeMap::new(),
            ahead,
            empty_handed: false,
            except: Vec::new(),
        };
        let (oracle, subject) = both!(self, claim(claim.clone()));
        self.hold(session, oracle.unwrap().units, subject.unwrap().units);
    }

    fn hold(&mut self, session: SessionId, oracle: Vec<HeldUnit>, subject: Vec<HeldUnit>) {
        let by_unit = |held: Vec<HeldUnit>| -> BTreeMap<UnitId, (Lease, bool, u32)> {
            let entry =
                |held: HeldUnit| (held.unit.id, (held.lease, held.started, held.unit.attempt));
            held.into_iter().map(entry).collect()
        };
        let (oracle, subject) = (by_unit(oracle), by_unit(subject));
        let shown = |held: &BTreeMap<UnitId, (Lease, bool, u32)>| -> Vec<(UnitId, bool, u32)> {
            held.iter().map(|(id, (_, started, attempt))| (*id, *started, *attempt)).collect()
        };
        assert_eq!(shown(&oracle), shown(&subject), "the stores gave different units");
        for (id, (lease, ..)) in oracle {
            self.leases.push(Pair { session, oracle: lease, subject: subject[&id].0 });
        }
    }

    fn held_by(&self, session: SessionId) -> (Vec<Lease>, Vec<Lease>) {
        let held = self.leases.iter().filter(|pair| pair.session == session);
        held.map(|pair| (pair.oracle, pair.subject)).unzip()
    }

    async fn start(&mut self, n: u8) {
        let Some(session) = choose(&self.sessions, n) else {
            return;
        };
        let (ours, theirs) = self.held_by(session);
        let oracle = self.oracle.store.start(session, &ours).await;
        agree("start", (oracle, self.subject.store.start(session, &theirs).await));
    }

    async fn release(&mut self, n: u8) {
        let Some(session) = choose(&self.sessions, n) else {
            return;
        };
        let (ours, theirs) = self.held_by(session);
        let oracle = self.oracle.store.release(session, &ours).await;
        agree("release", (oracle, self.subject.store.release(session, &theirs).await));
        let left = self.oracle.store.held(session).await.unwrap();
        let lost = self
            .leases
            .extract_if(.., |pair| pair.session == session && !left.contains(&pair.oracle));
        self.spent.extend(lost);
    }

    async fn finish(&mut self, n: u8, outcome: &Outcome) {
        if self.leases.is_empty() {
            return;
        }
        let pair = self.leases.swap_remove(usize::from(n) % self.leases.len());
        self.say(pair, outcome).await;
        self.spent.push(pair);
    }

    async fn finish_again(&mut self, n: u8, outcome: &Outcome) {
        if let Some(pair) = choose(&self.spent, n) {
            self.say(pair, outcome).await;
        }
    }

    async fn say(&self, pair: Pair, outcome: &Outcome) {
        let finish = |lease| vec![Finish::new(lease, outcome.clone())];
        let oracle = self.oracle.store.finish(pair.session, finish(pair.oracle)).await;
        let subject = self.subject.store.finish(pair.session, finish(pair.subject)).await;
        agree("finish", (oracle, subject));
    }

    async fn checkpoint(&self, n: u8) {
        let Some(pair) = choose(&self.leases, n).or_else(|| choose(&self.spent, n)) else {
            return;
        };
        let state = || b"\"here\"".as_slice().into();
        let sums = || Sums::from([("runs".to_owned(), 1)]);
        let oracle = self
            .oracle
            .store
            .checkpoint(pair.session, pair.oracle, Kept { sums: sums(), ..Kept::new(state()) })
            .await;
        let subject = self
            .subject
            .store
            .checkpoint(pair.session, pair.subject, Kept { sums: sums(), ..Kept::new(state()) })
            .await;
        agree("checkpoint", (oracle, subject));
    }

    async fn operate(&self, n: u8, action: UnitAction) {
        let Some(unit) = choose(&self.units, n) else {
            return;
        };
        let ids = UnitSelection::Ids(vec![unit]);
        agree("operate", both!(self, operate_units(&ALL, ids.clone(), action)));
    }

    async fn steer(&self, change: QueueChange) {
        let queue = QueueName::default();
        agree("steer", both!(self, change_queue(&ALL, &queue, change)));
    }

    /// Batches stay: stores may differ in what goes with them.
    async fn prune(&self, seconds: u16) {
        let kept = seconds_of(seconds);
        let batches = Duration::from_secs(1 << 40);
        let retention = Retention { done: kept, failed: kept * 2, batches, ..Retention::default() };
        let (oracle, subject) = both!(self, prune(retention, 100_000));
        agree("prune", (oracle.map(|p| p.units), subject.map(|p| p.units)));
    }
}

pub(super) fn choose<T: Copy>(things: &[T], n: u8) -> Option<T> {
    (!things.is_empty()).then(|| things[usize::from(n) % things.len()])
}

pub(super) fn tenant_of(other: bool) -> TenantId {
    TenantId::new(if other { "acme" } else { "default" }).unwrap()
}

pub(super) fn kind() -> Kind {
    Kind::new("work").unwrap()
}

fn batch_id(n: u8) -> BatchId {
    BatchId::new(format!("batch-{n}")).unwrap()
}

pub(super) fn seconds_of(seconds: u16) -> Duration {
    Duration::from_secs(u64::from(seconds))
}
