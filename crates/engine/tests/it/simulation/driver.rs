//! The driver of a simulation: sends units, injects faults, ends them, and checks the invariants.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longshore::failure_detector::StalledSession;
use longshore::services::Services;
use longshore::store::{Capacity, Maintenance, Queries, QueueChange, Queues, SettingsChange};
use longshore::{
    Admin, BatchId, BatchStatus, Client, HeartbeatPlacement, Kind, MemoryStore, NewBatch, NewUnit, Payload,
    Policy, QueueName, RetryPolicy, Scope, UnitId, UnitState, WhenFull, Worker, WorkerControl,
};
use longshore_testkit::{Fault, FaultyStore, Rng};
use tokio::task::{AbortHandle, JoinSet};

use super::Summary;
use super::handler::{SimEnding, SimHandler, SimLog, SimResult, SimTask};
use crate::harness::{Jump, TokioClock};

const ALL: Scope = Scope::All;
/// The capacity of the bounded queue.
const CAPACITY: u64 = 8;
/// The virtual time within which everything must end after the faults.
const CALM_LIMIT: Duration = Duration::from_secs(3_600);
/// How long the driver waits for a draining worker.
const DRAIN_LIMIT: Duration = Duration::from_secs(600);

/// A client and workers on one store; each has a faulty connection of its own.
pub(super) struct Simulation {
    rng: Rng,
    clock: Arc<TokioClock>,
    memory: Arc<MemoryStore>,
    log: Arc<SimLog>,
    /// The connections of all clients and workers, also of ended ones.
    links: Vec<Arc<FaultyStore>>,
    faults: Arc<AtomicU64>,
    /// The faults have ended.
    calm: Arc<AtomicBool>,
    /// Per cent of calls with a fault.
    fault_rate: u64,
    workers: Vec<SimWorker>,
    tasks: JoinSet<Result<(), String>>,
    started: u64,
    kills: u64,
}

struct SimWorker {
    control: WorkerControl,
    task: AbortHandle,
    link: Arc<FaultyStore>,
}

fn kind() -> Kind {
    Kind::new("simulated").unwrap()
}

impl Simulation {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let clock = Arc::new(TokioClock::new());
        let fault_rate = [2, 10, 25, 50][usize::try_from(rng.below(4)).unwrap()];
        Self {
            fault_rate,
            rng,
            memory: Arc::new(MemoryStore::new(Arc::clone(&clock) as _)),
            clock,
            log: Arc::new(SimLog::new()),
            links: Vec::new(),
            faults: Arc::default(),
            calm: Arc::default(),
            workers: Vec::new(),
            tasks: JoinSet::new(),
            started: 0,
            kills: 0,
        }
    }

    pub(super) async fn run(mut self) -> Result<Summary, String> {
        let queue = QueueName::new("bounded").unwrap();
        let capacity = Some(Capacity { units: Some(CAPACITY), bytes: None });
        let change = SettingsChange::Queue(QueueChange { capacity, ..QueueChange::default() });
        self.memory.change_settings(&ALL, &queue, change).await.unwrap();
        let (plain, batched) = (5 + self.rng.below(20), 5 + self.rng.below(20));
        let ids = self.start_client(queue, plain, batched);
        for _ in 0..=self.rng.below(3) {
            self.start_worker();
        }
        for _ in 0..5 + self.rng.below(25) {
            let pause = Duration::from_millis(self.rng.below(2_500));
            tokio::time::sleep(pause).await;
            self.disturb().await;
            self.check_running().await?;
        }
        self.calm_down().await?;
        self.drain().await?;
        self.check_end(&ids, batched).await?;
        let (runs, faults) = (self.log.runs(), self.faults.load(Ordering::Relaxed));
        let trace = self.log.trace.hash();
        Ok(Summary { units: plain + batched, runs, faults, kills: self.kills, trace })
    }

    /// A connection to the store with random faults.
    fn link(&mut self) -> Arc<FaultyStore> {
        let link = Arc::new(FaultyStore::new(Arc::clone(&self.memory) as _));
        let (mut rng, rate) = (Rng::new(self.rng.below(u64::MAX)), self.fault_rate);
        let (faults, calm, log) = (Arc::clone(&self.faults), Arc::clone(&self.calm), Arc::clone(&self.log));
        let number = self.links.len();
        link.set_fault_source(Some(Box::new(move |method| {
            let strikes = rng.percent(rate) && !calm.load(Ordering::Relaxed);
            let fault = strikes.then(|| random_fault(&mut rng));
            // A client accepts that the cursor has moved only after a retry of its own: another client may have moved it.
            let fault = fault.filter(|fault| *fault != Fault::Duplicate || method != "add_to_batch");
            faults.fetch_add(u64::from(fault.is_some()), Ordering::Relaxed);
            log.trace.record(&(number, method, fault));
            fault
        })));
        self.links.push(Arc::clone(&link));
        link
    }

    /// Starts a client that sends units to a bounded queue, and a batch. Returns all ids.
    fn start_client(&mut self, queue: QueueName, plain: u64, batched: u64) -> Vec<UnitId> {
        let plain: Vec<NewUnit> = (0..plain).map(|n| self.unit(n, queue.clone())).collect();
        let rest = (1_000..1_000 + batched).map(|n| self.unit(n, QueueName::default())).collect::<Vec<_>>();
        let ids = plain.iter().chain(&rest).map(|unit| unit.id).collect();
        let client = Client::new(self.link() as _).with_retry_timeout(CALM_LIMIT);
        self.tasks.spawn(async move {
            let sending = async {
                for unit in plain {
                    client.send(unit).await?;
                }
                let mut batch = client.open_batch(NewBatch::new(batch_id())).await?.when_full(WhenFull::Wait);
                for (n, chunk) in rest.chunks(7).enumerate() {
                    batch.add(chunk.to_vec(), format!("chunk {n}")).await?;
                }
                batch.seal().await
            };
            sending.await.map(drop).map_err(|error| format!("the client gave up: {error}"))
        });
        ids
    }

    fn unit(&mut self, n: u64, queue: QueueName) -> NewUnit {
        let ending = match self.rng.below(8) {
            0 => SimEnding::Retry,
            1 => SimEnding::Panic,
            2 => SimEnding::Snooze,
            3 => SimEnding::Checkpoint,
            _ => SimEnding::Done,
        };
        let longest = [10, 200, 4_000][usize::try_from(self.rng.below(3)).unwrap()];
        let task = SimTask { n, ms: self.rng.below(longest), ending };
        let mut unit = NewUnit::new(kind(), Payload::json(&task).unwrap());
        unit.queue = queue;
        // A random id would make the delays of retries random.
        unit.id = format!("00000000-0000-7000-8000-{n:012}").parse().unwrap();
        unit
    }

    fn start_worker(&mut self) {
        self.started += 1;
        let link = self.link();
        let retry =
            RetryPolicy { max_attempts: 1_000, cap: Duration::from_secs(5), ..RetryPolicy::default() };
        let policy = Policy { retry, max_lost: 1_000, ..Policy::default() };
        let worker = Worker::builder(Arc::clone(&link) as _)
            .slots(1 + u32::try_from(self.rng.below(4)).unwrap())
            .ttl(Duration::from_secs(1 + self.rng.below(6)))
            .grace(Duration::from_secs(1))
            .label(format!("{:04}", self.started))
            .services(Services::All)
            .heartbeat(HeartbeatPlacement::Task)
            .handle(kind(), policy, SimHandler(Arc::clone(&self.log)))
            .build()
            .unwrap();
        let control = worker.control();
        let run = worker.run();
        let task = self.tasks.spawn(async move {
            run.await.map(drop).map_err(|error| format!("a worker ended by itself: {error}"))
        });
        self.workers.push(SimWorker { control, task, link });
    }

    fn any_worker(&mut self) -> usize {
        usize::try_from(self.rng.below(self.workers.len() as u64)).unwrap()
    }

    /// Injects one fault.
    async fn disturb(&mut self) {
        match self.rng.below(7) {
            0 => {
                let at = self.any_worker();
                self.workers.swap_remove(at).task.abort();
                self.kills += 1;
                self.start_worker();
            }
            1 => {
                let at = self.any_worker();
                self.workers.swap_remove(at).control.drain();
                self.start_worker();
            }
            2 => {
                let at = self.any_worker();
                let link = Arc::clone(&self.workers[at].link);
                self.outage(&[link]).await;
            }
            3 => {
                let links = self.links.clone();
                self.outage(&links).await;
            }
            4 => self.end_session().await,
            // A retry waits for the wall clock, so a jump back delays it by as much.
            5 => self.clock.jump(match self.rng.percent(50) {
                true => Jump::Ahead(Duration::from_secs(self.rng.below(3_600))),
                false => Jump::Back(Duration::from_secs(self.rng.below(60))),
            }),
            _ => self.start_worker(),
        }
    }

    async fn outage(&mut self, links: &[Arc<FaultyStore>]) {
        links.iter().for_each(|link| link.set_outage(true));
        tokio::time::sleep(Duration::from_millis(self.rng.below(12_000))).await;
        links.iter().for_each(|link| link.set_outage(false));
    }

    /// Ends a session as another process does that wrongly takes its worker for dead.
    async fn end_session(&mut self) {
        let mut sessions = self.memory.sessions().await.unwrap();
        // Session ids are random; labels are not.
        sessions.sort_by(|a, b| a.label.cmp(&b.label));
        if sessions.is_empty() {
            return;
        }
        let at = usize::try_from(self.rng.below(sessions.len() as u64)).unwrap();
        let stalled = StalledSession { session: sessions[at].id, beats: sessions[at].beats };
        self.memory.reclaim(&[stalled]).await.unwrap();
    }

    /// The invariants that hold at every moment.
    async fn check_running(&mut self) -> Result<(), String> {
        if let Some(broken) = self.log.broken() {
            return Err(broken);
        }
        self.check_tasks()?;
        let queues = self.memory.queues(&ALL).await.unwrap();
        let bounded = queues.iter().filter(|queue| queue.queue.as_str() == "bounded");
        let live: u64 = bounded.map(|queue| queue.counts.live()).sum();
        ensure(live <= CAPACITY, || format!("bounded: {live} units in a queue of {CAPACITY}"))?;
        self.check_store().await
    }

    /// A client or worker that failed breaks the simulation.
    fn check_tasks(&mut self) -> Result<(), String> {
        while let Some(ended) = self.tasks.try_join_next() {
            match ended {
                Ok(result) => result?,
                Err(error) if error.is_cancelled() => {}
                Err(error) => return Err(format!("a task panicked: {error}")),
            }
        }
        Ok(())
    }

    async fn check_store(&self) -> Result<(), String> {
        let violations = self.memory.verify().await.unwrap();
        ensure(violations.is_empty(), || format!("tally_is_exact: {violations:?}"))
    }

    /// Ends all faults, and waits until all units have ended.
    async fn calm_down(&mut self) -> Result<(), String> {
        self.calm.store(true, Ordering::Relaxed);
        let limit = tokio::time::Instant::now() + CALM_LIMIT;
        loop {
            self.check_running().await?;
            let totals = self.memory.totals(&ALL, &Queues::All).await.unwrap();
            let batch = self.memory.batch(&ALL, &batch_id()).await;
            if totals.counts.live() == 0 && batch.is_ok_and(|batch| batch.status == BatchStatus::Complete) {
                return Ok(());
            }
            ensure(tokio::time::Instant::now() < limit, || {
                format!("no_unit_lost: units never end: {:?}", totals.counts)
            })?;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }

    /// `drain_is_clean`: workers end by themselves, and leave no session.
    async fn drain(&mut self) -> Result<(), String> {
        self.workers.iter().for_each(|worker| worker.control.drain());
        let limit = tokio::time::Instant::now() + DRAIN_LIMIT;
        while !self.tasks.is_empty() {
            self.check_tasks()?;
            ensure(tokio::time::Instant::now() < limit, || "drain_is_clean: a worker does not end".into())?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    async fn check_end(&self, ids: &[UnitId], batched: u64) -> Result<(), String> {
        for id in ids {
            let unit = self.memory.unit(&ALL, *id).await.map_err(|error| format!("no_unit_lost: {error}"))?;
            ensure(unit.state == UnitState::Done, || format!("no_unit_lost: {unit:?}"))?;
            let result: SimResult = unit.result.as_ref().unwrap().parse().unwrap();
            let last = self.log.largest_fence(*id);
            ensure(last == Some(result.fence), || {
                format!("stale_holder_cannot_finish: the last run has {last:?}, the result {}", result.fence)
            })?;
        }
        let batch = self.memory.batch(&ALL, &batch_id()).await.unwrap();
        ensure(batch.counts.total() == batched && batch.counts.done == batched, || {
            format!("tally_is_exact: {:?} of {batched}", batch.counts)
        })?;
        let totals = self.memory.totals(&ALL, &Queues::All).await.unwrap();
        ensure(totals.counts.done == ids.len() as u64, || format!("tally_is_exact: {:?}", totals.counts))?;
        self.check_store().await
    }
}

fn batch_id() -> BatchId {
    BatchId::new("b").unwrap()
}

fn ensure(holds: bool, broken: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(broken()) }
}

fn random_fault(rng: &mut Rng) -> Fault {
    let short = Duration::from_millis(rng.below(300));
    let long = Duration::from_millis(rng.below(15_000));
    match rng.below(13) {
        0..3 => Fault::FailBefore,
        3..6 => Fault::FailAfter,
        6 => Fault::Duplicate,
        7..9 => Fault::Delay(short),
        9 => Fault::DelayReply(short),
        10 => Fault::Delay(long),
        11 => Fault::TimeOut,
        _ => Fault::DelayReply(long),
    }
}
