//! What the tests share: a memory store on paused time that can be broken, a client, and one
//! handler that does whatever its payload says.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore::store::Inspect;
use longshore::{
    Client, Clock, Context, Effect, Handler, HandlerResult, Heartbeat, Kind, MemoryStore, NewUnit,
    Payload, Policy, Reply, RetryPolicy, Scope, Timestamp, Unit, UnitId, Verdict, Worker,
    WorkerBuilder,
};
use longshore_testkit::{Fault, FaultyStore, ManualClock};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Follows tokio's clock, so that paused time moves the store too, and jumps when told.
struct TokioClock {
    began: tokio::time::Instant,
    base: ManualClock,
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.base.now() + self.began.elapsed()
    }
}

/// A store, a client, and what the scripted handler saw.
pub(crate) struct Harbour {
    pub(crate) store: Arc<FaultyStore>,
    pub(crate) client: Client,
    pub(crate) log: Arc<Log>,
    clock: Arc<TokioClock>,
}

/// Where a wall clock jumps.
pub(crate) enum Jump {
    Ahead(Duration),
    Back(Duration),
}

/// What the scripted handler saw.
#[derive(Default)]
pub(crate) struct Log {
    runs: Mutex<Vec<UnitId>>,
    now: AtomicU32,
    peak: AtomicU32,
}

impl Log {
    pub(crate) fn runs(&self) -> usize {
        self.runs.lock().unwrap().len()
    }

    pub(crate) fn runs_of(&self, id: UnitId) -> usize {
        self.runs.lock().unwrap().iter().filter(|run| **run == id).count()
    }

    pub(crate) fn order(&self) -> Vec<UnitId> {
        self.runs.lock().unwrap().clone()
    }

    /// The most runs at once.
    pub(crate) fn peak(&self) -> u32 {
        self.peak.load(Ordering::SeqCst)
    }

    pub(crate) fn running(&self) -> u32 {
        self.now.load(Ordering::SeqCst)
    }
}

/// What a unit tells its handler to do.
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
    /// Saves a checkpoint and fails; the next run answers with it.
    Checkpoint(Value),
    /// Waits to be asked to end, then gives up.
    Obey,
    /// Never ends.
    Ignore,
    /// Blocks its thread for this long, in milliseconds.
    Block(u64),
    Effect(String),
    /// Answers with this many bytes.
    Large(usize),
    Progress(f64),
    /// Sends a unit to this queue.
    Send(String),
}

pub(crate) struct Scripted(pub(crate) Arc<Log>);

struct Running(Arc<Log>);

impl Running {
    fn begin(log: &Arc<Log>, unit: UnitId) -> Self {
        log.runs.lock().unwrap().push(unit);
        let now = log.now.fetch_add(1, Ordering::SeqCst) + 1;
        log.peak.fetch_max(now, Ordering::SeqCst);
        Self(Arc::clone(log))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Handler for Scripted {
    type Input = Script;
    type Output = Value;

    async fn run(&self, context: Context, script: Script) -> HandlerResult<Value> {
        let _running = Running::begin(&self.0, context.unit().id);
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
                Some(kept) => return Ok(Reply::new(kept.parse()?)),
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
                return Ok(Reply::new(Value::Null).with_effects([effect]));
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

/// Two attempts, a second apart at most.
pub(crate) fn twice() -> Policy {
    Policy { retry: RetryPolicy { max_attempts: 2, ..RetryPolicy::default() }, ..Policy::default() }
}

impl Harbour {
    pub(crate) fn new() -> Self {
        Self::with_faults(&[])
    }

    /// A store in which call number `nth` of a verb goes wrong.
    pub(crate) fn with_faults(faults: &[(&'static str, u64, Fault)]) -> Self {
        let began = tokio::time::Instant::now();
        let clock = Arc::new(TokioClock { began, base: ManualClock::default() });
        let memory = MemoryStore::new(Arc::clone(&clock) as _);
        let mut store = FaultyStore::new(Arc::new(memory));
        for (verb, nth, fault) in faults {
            store = store.with(verb, *nth, *fault);
        }
        let store = Arc::new(store);
        let client = Client::new(Arc::clone(&store) as _);
        Self { store, client, log: Arc::default(), clock }
    }

    /// The store's time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The wall clock jumps; monotonic time does not notice.
    pub(crate) fn jump(&self, way: Jump) {
        let base = &self.clock.base;
        match way {
            Jump::Ahead(by) => base.set(base.now() + by),
            Jump::Back(by) => base.set(base.now() - by),
        }
    }

    /// A worker with the scripted handler.
    pub(crate) fn worker(&self, slots: u32) -> WorkerBuilder {
        let handler = Scripted(Arc::clone(&self.log));
        Worker::builder(Arc::clone(&self.store) as _)
            .slots(slots)
            // A thread's clock does not follow paused time.
            .heartbeat(Heartbeat::Task)
            .handle(kind(), twice(), handler)
    }

    pub(crate) async fn send(&self, script: Script) -> UnitId {
        self.client.send(unit(&script)).await.unwrap()
    }

    pub(crate) async fn send_all(&self, count: usize, script: Script) -> Vec<UnitId> {
        let units: Vec<NewUnit> = (0..count).map(|_| unit(&script)).collect();
        let ids = units.iter().map(|unit| unit.id).collect();
        self.client.send_many(units, longshore::WhenFull::Refuse).await.unwrap();
        ids
    }

    pub(crate) async fn unit(&self, id: UnitId) -> Unit {
        self.store.unit(&Scope::All, id).await.unwrap()
    }

    /// Waits, in paused time, until `reached`.
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

    /// Nothing is held, no session is left, and every counter is right.
    pub(crate) async fn assert_clean(&self) {
        assert_eq!(self.log.running(), 0, "a handler still runs");
        assert_eq!(self.store.verify().await.unwrap(), vec![]);
        assert_eq!(self.store.sessions().await.unwrap(), vec![], "a session was left");
        let totals = self.store.totals(&Scope::All, &longshore::store::Queues::All).await.unwrap();
        assert_eq!(totals.counts.leased, 0, "a unit is still leased");
    }
}
