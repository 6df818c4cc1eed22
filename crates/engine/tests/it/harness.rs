//! Shared test harness: a memory store on paused time with fault injection, a client, and a handler
//! that follows the script in its payload.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore::store::Queries;
use longshore::{
    AlertSink, Client, Clock, Context, Effect, Handler, HandlerReply, HandlerResult, HeartbeatPlacement,
    Kind, MemoryStore, NewUnit, Payload, Policy, PoolAlert, RetryPolicy, Scope, ServiceAlert, Timestamp,
    Unit, UnitId, Verdict, Worker, WorkerBuilder,
};
use longshore_testkit::{Fault, FaultyStore, ManualClock};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Follows tokio's clock, so that paused time moves the store too. Can jump.
pub(crate) struct TokioClock {
    began: tokio::time::Instant,
    base: ManualClock,
}

impl TokioClock {
    pub(crate) fn new() -> Self {
        Self { began: tokio::time::Instant::now(), base: ManualClock::default() }
    }

    /// Moves the wall clock, but not the monotonic clock.
    pub(crate) fn jump(&self, way: Jump) {
        match way {
            Jump::Ahead(by) => self.base.set(self.base.now() + by),
            Jump::Back(by) => self.base.set(self.base.now() - by),
        }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.base.now() + self.began.elapsed()
    }
}

/// A store, a client, and the scripted handler's log.
pub(crate) struct Harness {
    pub(crate) store: Arc<FaultyStore>,
    pub(crate) client: Client,
    pub(crate) log: Arc<RunLog>,
    clock: Arc<TokioClock>,
}

/// Keeps alerts.
#[derive(Default)]
pub(crate) struct AlertLog(Mutex<Vec<String>>);

impl AlertLog {
    /// The alerts since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

#[async_trait::async_trait]
impl AlertSink for AlertLog {
    async fn send(&self, _: &PoolAlert) {}

    async fn send_service_alert(&self, alert: &ServiceAlert) {
        self.0.lock().unwrap().push(alert.message.clone());
    }
}

/// A jump of the wall clock.
pub(crate) enum Jump {
    Ahead(Duration),
    Back(Duration),
}

/// The scripted handler's runs.
#[derive(Default)]
pub(crate) struct RunLog {
    runs: Mutex<Vec<UnitId>>,
    now: AtomicU32,
    peak: AtomicU32,
}

impl RunLog {
    pub(crate) fn runs(&self) -> usize {
        self.runs.lock().unwrap().len()
    }

    pub(crate) fn runs_of(&self, id: UnitId) -> usize {
        self.runs.lock().unwrap().iter().filter(|run| **run == id).count()
    }

    pub(crate) fn order(&self) -> Vec<UnitId> {
        self.runs.lock().unwrap().clone()
    }

    /// The most concurrent runs.
    pub(crate) fn peak(&self) -> u32 {
        self.peak.load(Ordering::SeqCst)
    }

    pub(crate) fn running(&self) -> u32 {
        self.now.load(Ordering::SeqCst)
    }
}

/// What the handler does, chosen by the unit's payload.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Script {
    Ok(Value),
    Error(String),
    Panic(String),
    /// Milliseconds.
    Sleep(u64),
    /// Milliseconds, on the first run; then ok.
    Snooze(u64),
    /// Wait exactly this long, in milliseconds, after the first run; then ok.
    RetryAfter(u64),
    Fail(String),
    Cancel,
    /// Saves a checkpoint and fails; the next run returns it.
    Checkpoint(Value),
    /// Waits for the cancellation, then returns a retry.
    Obey,
    /// Never returns.
    Ignore,
    /// Blocks its thread for this long, in milliseconds.
    Block(u64),
    Effect(String),
    /// Returns this many bytes.
    Large(usize),
    Progress(f64),
    /// Sends a unit to this queue.
    Send(String),
}

pub(crate) struct ScriptedHandler(pub(crate) Arc<RunLog>);

struct RunGuard(Arc<RunLog>);

impl RunGuard {
    fn begin(log: &Arc<RunLog>, unit: UnitId) -> Self {
        log.runs.lock().unwrap().push(unit);
        let now = log.now.fetch_add(1, Ordering::SeqCst) + 1;
        log.peak.fetch_max(now, Ordering::SeqCst);
        Self(Arc::clone(log))
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Handler for ScriptedHandler {
    type Input = Script;
    type Output = Value;

    async fn run(&self, context: Context, script: Script) -> HandlerResult<Value> {
        let _running = RunGuard::begin(&self.0, context.unit().id);
        let again = self.0.runs_of(context.unit().id) > 1;
        let millis = Duration::from_millis;
        match script {
            Script::Ok(value) => return Ok(value.into()),
            Script::Error(why) => return Err(std::io::Error::other(why).into()),
            Script::Panic(why) => panic!("{why}"),
            Script::Sleep(time) => tokio::time::sleep(millis(time)).await,
            Script::Snooze(time) if !again => return Err(Verdict::Snooze(millis(time))),
            Script::RetryAfter(time) if !again => {
                return Err(Verdict::retry_after("later", "not yet", millis(time)));
            }
            Script::Snooze(_) | Script::RetryAfter(_) => {}
            Script::Fail(why) => return Err(Verdict::fail("scripted", why)),
            Script::Cancel => return Err(Verdict::Cancel),
            Script::Checkpoint(state) => match context.checkpoint() {
                Some(kept) => return Ok(HandlerReply::new(kept.parse()?)),
                None => {
                    context.save_checkpoint(Payload::from(state)).await?;
                    return Err(Verdict::retry("crashed", "after the checkpoint"));
                }
            },
            Script::Obey => {
                context.cancelled().cancelled().await;
                return Err(Verdict::retry("obeyed", "was asked to end"));
            }
            Script::Ignore => std::future::pending().await,
            Script::Block(time) => std::thread::sleep(millis(time)),
            Script::Effect(sql) => {
                let params = longshore::outcome::Params::Ordered(vec![]);
                let effect = Effect { sql, params, expected_rows: None };
                return Ok(HandlerReply::new(Value::Null).with_effects([effect]));
            }
            Script::Large(bytes) => return Ok(json!("x".repeat(bytes)).into()),
            Script::Progress(fraction) => {
                context.progress(Some(fraction / 2.0), None);
                context.progress(Some(fraction), Some("halfway"));
                context.cancelled().cancelled().await;
            }
            Script::Send(queue) => {
                let mut unit = unit(&Script::Ok(json!(1)));
                unit.queue = queue.parse()?;
                context.client().send(unit).await?;
            }
        }
        Ok(Value::Null.into())
    }
}

pub(crate) fn kind() -> Kind {
    Kind::new("script").unwrap()
}

pub(crate) fn unit(script: &Script) -> NewUnit {
    NewUnit::new(kind(), Payload::json(script).unwrap())
}

/// Two attempts, at most a second apart.
pub(crate) fn twice() -> Policy {
    Policy { retry: RetryPolicy { max_attempts: 2, ..RetryPolicy::default() }, ..Policy::default() }
}

impl Harness {
    pub(crate) fn new() -> Self {
        Self::with_faults(&[])
    }

    /// A store that breaks call number `nth` of a method.
    pub(crate) fn with_faults(faults: &[(&'static str, u64, Fault)]) -> Self {
        let clock = Arc::new(TokioClock::new());
        let memory = MemoryStore::new(Arc::clone(&clock) as _);
        let mut store = FaultyStore::new(Arc::new(memory));
        for (method, nth, fault) in faults {
            store = store.with_fault(method, *nth, *fault);
        }
        let store = Arc::new(store);
        let client = Client::new(Arc::clone(&store) as _);
        Self { store, client, log: Arc::default(), clock }
    }

    /// The store's time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Moves the wall clock, but not the monotonic clock.
    pub(crate) fn jump(&self, way: Jump) {
        self.clock.jump(way);
    }

    /// A worker with the scripted handler.
    pub(crate) fn worker(&self, slots: u32) -> WorkerBuilder {
        let handler = ScriptedHandler(Arc::clone(&self.log));
        Worker::builder(Arc::clone(&self.store) as _)
            .slots(slots)
            // A thread's clock does not follow paused time.
            .heartbeat(HeartbeatPlacement::Task)
            .handle(kind(), twice(), handler)
    }

    pub(crate) async fn send(&self, script: Script) -> UnitId {
        self.client.send(unit(&script)).await.unwrap()
    }

    pub(crate) async fn send_all(&self, count: usize, script: Script) -> Vec<UnitId> {
        let units: Vec<NewUnit> = (0..count).map(|_| unit(&script)).collect();
        let ids = units.iter().map(|unit| unit.id).collect();
        self.client.send_many(units, longshore::WhenFull::Reject).await.unwrap();
        ids
    }

    pub(crate) async fn unit(&self, id: UnitId) -> Unit {
        self.store.unit(&Scope::All, id).await.unwrap()
    }

    /// Waits in paused time until `reached`.
    pub(crate) async fn until(&self, reached: impl AsyncFn() -> bool) {
        let limit = tokio::time::Instant::now() + Duration::from_secs(120);
        while !reached().await {
            assert!(tokio::time::Instant::now() < limit, "not reached in two minutes");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn until_running(&self, count: u32) {
        self.until(async || self.log.running() == count).await;
    }

    /// Asserts that nothing is held, no session is left, and every counter is exact.
    pub(crate) async fn assert_clean(&self) {
        assert_eq!(self.log.running(), 0, "a handler still runs");
        assert_eq!(self.store.verify().await.unwrap(), vec![]);
        assert_eq!(self.store.sessions().await.unwrap(), vec![], "a session was left");
        let totals = self.store.totals(&Scope::All, &longshore::store::Queues::All).await.unwrap();
        assert_eq!(totals.counts.leased, 0, "a unit is still leased");
    }
}
