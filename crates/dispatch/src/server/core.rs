//! The heart of a server: one task that owns the board, hears everybody and tells everybody.
//!
//! Waits for nobody. Claims, ends and beats are calls to the store that run beside it; a worker's
//! words wait in its line. What is decided is decided by the board.

mod ending;
mod losses;
mod pausing;
mod views;
mod workers;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use longshore::session::Lease;
use longshore::store::{Beat, BeatAnswer, Finish, Finished};
use longshore::{BatchId, Error, Outcome, Store, UnitId};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::bodies::Bodies;
use super::claims::{Cargo, Claims, Entry, Taken, running};
use super::doubts::Doubts;
use super::ends::{Ends, Settled};
use super::line::{LineId, Out};
use super::{Report, Timing};
use crate::board::{Board, SeatId};
use crate::launch::scale::Present;
use crate::request::{Ending, Status};
use crate::script;
use crate::system::Cause;
use crate::wire::{FromWorker, Load, Order, Register, ToWorker};

/// How many events are heard at once.
const AT_ONCE: usize = 512;
/// Whoever did not turn to anybody for so long was deaf: a machine asleep, a disk that hangs.
const DEAF: Duration = Duration::from_secs(1);
/// How often the board is looked over without an event.
const LOOK: Duration = Duration::from_millis(100);

/// So long even a worker is waited for after a restart that was not noted in time: longer than the
/// longest pause between two of its tries.
const UNNOTED: Duration = Duration::from_secs(3);

/// What the core hears of.
pub(super) enum Event {
    Joined(LineId, Box<Register>, Out),
    Words(LineId, FromWorker),
    Gone(LineId),
    Status(oneshot::Sender<Status>),
    View(oneshot::Sender<View>),
    Release(Vec<SeatId>),
    /// Something was cancelled: the store says what.
    BeatNow,
    /// An array was paused: what of it has not begun goes back.
    Paused(BatchId),
    /// Why jobs ended whose workers are lost.
    Fates(Vec<(u64, Cause)>),
    End(Ending),
}

/// What a launcher has to see.
pub(super) struct View {
    pub(super) now: Duration,
    /// Threads of everything that is claimed.
    pub(super) threads: u64,
    pub(super) present: Vec<Present>,
    /// Launches whose workers are lost, and nobody knows why.
    pub(super) lost: Vec<u64>,
    /// The pool comes to its end: nobody is to be launched any more.
    pub(super) closing: bool,
    /// Workers that are here or expected back, by their identities.
    pub(super) workers: BTreeSet<String>,
}

/// What is known of a worker beside its seat.
struct Member {
    launch: Option<u64>,
    line: LineId,
    out: Out,
    host: String,
    pid: u32,
    load: Load,
    /// When it will end by itself, on the board's clock.
    expires: Option<Duration>,
    /// It was told to go: by us, or by whoever is in charge where it runs.
    dismissed: bool,
}

/// Everything that the core owns.
pub(super) struct Core {
    store: Arc<dyn Store>,
    session: longshore::SessionId,
    timing: Timing,
    began: Instant,
    board: Board<Cargo>,
    bodies: Bodies,
    members: BTreeMap<SeatId, Member>,
    lines: HashMap<LineId, SeatId>,
    claims: Claims,
    ends: Ends,
    doubts: Doubts,
    /// How long a system may take to say why a job ended; none if nobody can be asked.
    doubt: Duration,
    beat: Option<BoxFuture<'static, longshore::Result<BeatAnswer>>>,
    next_beat: Instant,
    next_tidy: Instant,
    ending: Option<(Ending, Instant)>,
    /// When it was last through with what it had heard.
    turned: Instant,
    astray_until: Option<Duration>,
    /// Workers of an earlier life that have not come back.
    expected: BTreeSet<String>,
    /// What workers are to return because its array was paused.
    recalled: HashSet<UnitId>,
    report: Report,
    /// Tells others how many workers there are.
    seats: watch::Sender<usize>,
}

impl Core {
    pub(super) fn new(
        store: Arc<dyn Store>,
        session: longshore::SessionId,
        timing: Timing,
        seats: watch::Sender<usize>,
    ) -> Self {
        let now = Instant::now();
        Self {
            claims: Claims::new(Arc::clone(&store), session),
            ends: Ends::new(Arc::clone(&store), session),
            store,
            session,
            timing,
            began: now,
            board: Board::default(),
            bodies: Bodies::default(),
            members: BTreeMap::new(),
            lines: HashMap::new(),
            doubts: Doubts::default(),
            doubt: Duration::ZERO,
            beat: None,
            next_beat: now,
            next_tidy: now,
            ending: None,
            turned: now,
            astray_until: None,
            expected: BTreeSet::new(),
            recalled: HashSet::new(),
            report: Report::default(),
            seats,
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Somebody can be asked why jobs ended.
    pub(super) fn with_doubt(mut self, doubt: Duration) -> Self {
        self.doubt = doubt;
        self
    }

    /// Takes over what an earlier life had claimed, as its workers know it. They have a while to come
    /// back.
    pub(super) fn adopt(
        &mut self,
        former: Taken,
        told: &HashMap<UnitId, Lease>,
        workers: BTreeSet<String>,
    ) {
        let now = self.now();
        for unit in self.enter(former) {
            let as_told = told.get(&unit.lease.unit).copied().unwrap_or(unit.lease);
            let (lease, rank, need) = (unit.lease, unit.rank, unit.need);
            self.board.add_astray(now, (lease, as_told), rank, need, unit.cargo);
        }
        self.expected = workers;
        self.astray_until = Some(now + self.timing.reunion);
    }

    /// Runs until it has been ended and nothing is left to be said.
    pub(super) async fn run(mut self, mut events: mpsc::Receiver<Event>) -> Report {
        let mut heard = Vec::with_capacity(AT_ONCE);
        let mut tick = tokio::time::interval(LOOK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.is_over() {
            tokio::select! {
                _ = events.recv_many(&mut heard, AT_ONCE) => {}
                taken = self.claims.next() => self.on_taken(taken),
                settled = self.ends.next() => settled.into_iter().for_each(|it| self.on_settled(it)),
                answer = running(&mut self.beat) => self.on_beat(answer),
                _ = tick.tick() => self.look_over(),
            }
            for event in heard.drain(..) {
                self.on_event(event);
            }
            self.give();
            if self.board.is_empty() {
                self.ends.flush();
            } else {
                self.ends.flush_due();
            }
            if self.ending.is_none() {
                self.claims.want(&self.board, &self.bodies);
            }
            self.turned = Instant::now();
        }
        self.farewell().await;
        self.report
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Joined(line, register, out) => self.on_joined(line, *register, out),
            Event::Words(line, words) => self.on_words(line, words),
            Event::Gone(line) => self.on_gone(line),
            Event::Status(answer) => _ = answer.send(self.status()),
            Event::View(answer) => _ = answer.send(self.view()),
            Event::Release(seats) => seats.into_iter().for_each(|id| self.release(id)),
            Event::BeatNow => {
                self.next_beat = Instant::now();
                self.look_over();
            }
            Event::Paused(array) => self.on_paused(array),
            Event::Fates(fates) => {
                for (launch, cause) in fates {
                    let judged = self.doubts.on_fate(launch, cause);
                    self.judged(judged);
                }
            }
            Event::End(ending) => self.begin_to_end(ending),
        }
    }

    fn on_taken(&mut self, taken: Taken) {
        let now = self.now();
        for unit in self.enter(taken) {
            self.board.add(now, unit.lease, unit.rank, unit.need, unit.cargo);
        }
    }

    /// Gives each unit its body's number; those that cannot be read are ended.
    fn enter(&mut self, taken: Taken) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (source, body) in taken.bodies {
            if self.bodies.number_of(&source).is_none() {
                self.bodies.insert(source, body);
            }
        }
        for mut unit in taken.units {
            match self.bodies.number_of(&unit.source) {
                Some(number) => {
                    self.bodies.used(number);
                    unit.cargo.body = number;
                    entries.push(unit);
                }
                None => self.ends.push(Finish::new(unit.lease, unreadable()), None),
            }
        }
        for (lease, outcome) in taken.refused {
            self.ends.push(Finish::new(lease, outcome), None);
        }
        entries
    }

    fn on_settled(&mut self, settled: Settled) {
        let mut told: BTreeMap<SeatId, Vec<Lease>> = BTreeMap::new();
        for (end, answer) in settled.ends {
            if matches!(answer, Finished::LeaseLost) {
                tracing::warn!(unit = %end.lease.unit, "its end came too late: it is somebody else's");
            }
            if let Some((seat, lease)) = end.worker {
                told.entry(seat).or_default().push(lease);
            }
        }
        for (seat, leases) in told {
            self.tell(seat, ToWorker::Recorded(leases));
        }
        if settled.session_gone {
            self.session_gone();
        }
    }

    /// Somebody took the server for dead: nothing that it holds is its own any more.
    fn session_gone(&mut self) {
        tracing::error!("the session is gone: everything that was claimed is somebody else's");
        self.report.session_lost = true;
        self.begin_to_end(Ending::Now);
    }

    /// What the board gives, to those who get it.
    fn give(&mut self) {
        let now = self.now();
        let mut orders: BTreeMap<SeatId, Vec<Order>> = BTreeMap::new();
        for given in self.board.schedule(now) {
            let Some(task) = self.board.task(given.unit) else { continue };
            let order = task.cargo.order(task.told, &task.need);
            if let Some(body) = self.bodies.tell(task.cargo.body, given.seat) {
                let number = task.cargo.body;
                self.tell(given.seat, ToWorker::Body(number, Box::new((*body).clone())));
            }
            orders.entry(given.seat).or_default().push(order);
        }
        for (seat, orders) in orders {
            self.tell(seat, ToWorker::Run(orders));
        }
    }

    fn tell(&self, id: SeatId, word: ToWorker) {
        if let Some(member) = self.members.get(&id) {
            // A line that has just gone: what is said here is said again when its worker is back.
            let _ = member.out.send(word);
        }
    }

    fn drop_body(&mut self, number: u64) {
        for seat in self.bodies.unused(number).into_iter().flatten() {
            self.tell(seat, ToWorker::Drop(number));
        }
    }

    /// What has to be looked at without an event.
    fn look_over(&mut self) {
        let now = self.now();
        if self.turned.elapsed() >= DEAF {
            self.board.on_deafness(now);
        }
        for id in self.board.overdue(now, self.timing.ttl, self.timing.grace) {
            self.on_lost(now, id);
        }
        for recall in self.board.recalls() {
            let told = self.board.task(recall.unit).map(|task| task.told);
            self.tell(recall.seat, ToWorker::Recall(told.into_iter().collect()));
        }
        self.look_for_the_astray(now);
        let overdue = self.doubts.overdue(now);
        self.judged(overdue);
        if Instant::now() >= self.next_beat && self.beat.is_none() {
            self.next_beat = Instant::now() + self.timing.store_ttl / 6;
            let (store, session) = (Arc::clone(&self.store), self.session);
            self.beat = Some(Box::pin(async move {
                // It looks at every process below ours, of which there may be many.
                let cpu = tokio::task::spawn_blocking(longshore::cpu_time).await.ok().flatten();
                store.beat(session, Beat { cpu, ..Beat::default() }).await
            }));
        }
        if Instant::now() >= self.next_tidy && self.claims.is_idle() {
            self.next_tidy = Instant::now() + Duration::from_secs(30);
            for (number, seats) in self.bodies.idle() {
                for seat in seats {
                    self.tell(seat, ToWorker::Drop(number));
                }
            }
        }
        if let Some((Ending::Drain(_), until)) = self.ending
            && Instant::now() >= until
        {
            self.begin_to_end(Ending::Now);
        }
    }

    fn on_beat(&mut self, answer: longshore::Result<BeatAnswer>) {
        self.beat = None;
        let answer = match answer {
            Ok(answer) => answer,
            Err(Error::SessionGone(_)) => return self.session_gone(),
            Err(error) => return tracing::warn!(%error, "the store does not answer"),
        };
        for unit in answer.cancel {
            match self.board.withdraw(unit) {
                Some(task) => {
                    self.drop_body(task.cargo.body);
                    self.ends.push(Finish::new(task.lease, Outcome::Cancel), None);
                }
                None => {
                    if let Some(seat) = self.board.holder(unit) {
                        self.tell(seat, ToWorker::Cancel(vec![unit]));
                    }
                }
            }
        }
        for unit in answer.unwanted {
            self.give_back(unit);
        }
    }

    fn give_back(&mut self, unit: UnitId) {
        if let Some(task) = self.board.withdraw(unit) {
            self.drop_body(task.cargo.body);
            self.ends.push(Finish::new(task.lease, Outcome::Interrupted), None);
        }
    }
}

fn unreadable() -> Outcome {
    let words = format!(
        "its payload is neither a script nor an item of an array of kind `{}`",
        script::KIND
    );
    Outcome::Fail(longshore::Failure::new("bad-input", words))
}

/// The next of futures that may be none: then never.
pub(super) async fn next_of<T>(futures: &mut FuturesUnordered<BoxFuture<'static, T>>) -> T {
    match futures.next().await {
        Some(done) => done,
        None => std::future::pending().await,
    }
}
