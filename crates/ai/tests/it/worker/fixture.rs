//! Inference with a worker, on paused time that the store follows.

use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::{Call, CallStatus, Ledger};
use longshore::store::{Queries, Queues};
use longshore::{
    Client, Clock, HeartbeatPlacement, Kind, MemoryStore, NewUnit, Payload, Policy, QueueName, RetryPolicy,
    Scope, Store, Timestamp, Unit, UnitId, UnitState, Worker, WorkerBuilder,
};
use longshore_ai::contract::{Libraries, Reply, ReplyBody};
use longshore_ai::worker::{Inbox, KIND, QUEUE, REPLY_QUEUE_TTL, RequestHandler};
use longshore_ai::{NoPrompts, Prompts};
use longshore_testkit::ManualClock;
use longshore_testkit::crash_points::{CrashPoint, CrashPointLedger, CrashPointStore};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::inference::fixture::{InferenceFixture, tenant};

/// Follows tokio's clock, so that paused time moves the store, too.
struct TokioClock {
    began: Instant,
    base: ManualClock,
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.base.now() + self.began.elapsed()
    }
}

/// Inference, a client and workers on one store.
pub(super) struct WorkerFixture {
    pub(super) setup: InferenceFixture,
    pub(super) client: Client,
    pub(super) clock: Arc<dyn Clock>,
    prompts: Arc<dyn Prompts>,
}

/// Long enough for everything, on paused time.
pub(super) const LONG: Duration = Duration::from_secs(90);

impl WorkerFixture {
    pub(super) fn new() -> Self {
        Self::reading(NoPrompts)
    }

    /// A fixture with a prompt store.
    pub(super) fn reading(prompts: impl Prompts) -> Self {
        let clock: Arc<dyn Clock> =
            Arc::new(TokioClock { began: Instant::now(), base: ManualClock::default() });
        let setup = InferenceFixture::on(MemoryStore::new(Arc::clone(&clock)));
        let client = Client::new(Arc::clone(&setup.store) as _);
        Self { setup, client, clock, prompts: Arc::new(prompts) }
    }

    pub(super) fn worker(&self) -> WorkerBuilder {
        self.worker_on(Arc::clone(&self.setup.store) as _, Arc::clone(&self.setup.store) as _)
    }

    /// A worker that accesses store and ledger through a tripwire.
    pub(super) fn worker_with(&self, wire: &Arc<CrashPoint>) -> WorkerBuilder {
        let store = CrashPointStore::new(Arc::clone(&self.setup.store) as _, Arc::clone(wire));
        let ledger = CrashPointLedger::new(Arc::clone(&self.setup.store) as _, Arc::clone(wire));
        self.worker_on(Arc::new(store), Arc::new(ledger))
    }

    fn worker_on(&self, store: Arc<dyn Store>, ledger: Arc<dyn Ledger>) -> WorkerBuilder {
        let handler = RequestHandler::new(
            self.setup.inference.clone(),
            ledger,
            Libraries::default(),
            Arc::clone(&self.prompts),
            Arc::clone(&self.clock),
        );
        // As in `longshore ai worker`.
        let policy = Policy { retry: RetryPolicy::never(), max_lost: 5, ..Policy::default() };
        Worker::builder(store)
            .slots(8)
            // A thread's clock does not follow paused time.
            .heartbeat(HeartbeatPlacement::Task)
            .queues(Queues::Named(vec![QueueName::new(QUEUE).unwrap()]))
            .handle_erased(Kind::new(KIND).unwrap(), policy, Arc::new(handler))
    }

    /// Answers all waiting requests.
    pub(super) async fn work(&self) {
        self.worker().until_idle(true).build().unwrap().run().await.unwrap();
        self.is_clean().await;
    }

    /// Works until this unit has ended.
    pub(super) async fn work_until_done(&self, id: UnitId) {
        let worker = self.worker().build().unwrap();
        let control = worker.control();
        let watch = async {
            let ended = self.client.wait(id, Some(LONG)).await;
            control.drain();
            ended.unwrap();
        };
        let (ran, ()) = tokio::join!(worker.run(), watch);
        ran.unwrap();
        self.is_clean().await;
    }

    /// Opens a reply queue.
    pub(super) async fn inbox(&self, owner: &str, name: &str) -> Inbox {
        let store = &self.setup.store;
        let (store, ledger) = (Arc::clone(store) as _, Arc::clone(store) as _);
        Inbox::open(store, ledger, tenant(owner), name, REPLY_QUEUE_TTL).await.unwrap()
    }

    /// Enqueues any payload as a request.
    pub(super) async fn send(&self, owner: &str, payload: impl Into<Vec<u8>>) -> UnitId {
        let unit = NewUnit {
            tenant: tenant(owner),
            queue: QueueName::new(QUEUE).unwrap(),
            ..NewUnit::new(Kind::new(KIND).unwrap(), Payload::from(payload.into()))
        };
        self.client.send(unit).await.unwrap()
    }

    pub(super) async fn unit(&self, id: UnitId) -> Unit {
        self.setup.store.unit(&Scope::All, id).await.unwrap()
    }

    /// A unit's failure: its code and message.
    pub(super) async fn failure(&self, id: UnitId) -> (String, String) {
        let failure = self.unit(id).await.failure.expect("it failed");
        (failure.code, failure.message)
    }

    /// The code and message of the error reply that is a unit's result.
    pub(super) async fn error_reply(&self, id: UnitId) -> (String, String) {
        let unit = self.unit(id).await;
        assert_eq!(unit.state, UnitState::Done, "{:?}", unit.failure);
        let reply: Value = serde_json::from_slice(unit.result.unwrap().as_bytes()).unwrap();
        let text = |field: &str| reply[field].as_str().unwrap_or_default().to_owned();
        (text("error_code"), text("error_message"))
    }

    /// Call records, oldest first: request id and status.
    pub(super) async fn call_records(&self) -> Vec<(String, CallStatus)> {
        let actual = |call: Call| (call.call.request_id, call.status);
        self.setup.calls().await.into_iter().map(actual).collect()
    }

    /// Nothing is left open: no call, no lease, no contradiction in the store.
    pub(super) async fn is_clean(&self) {
        let open: Vec<_> = self.setup.calls().await;
        let open: Vec<_> = open.iter().filter(|call| call.status == CallStatus::Open).collect();
        assert!(open.is_empty(), "{open:?}");
        let totals = self.setup.store.totals(&Scope::All, &Queues::All).await.unwrap();
        assert_eq!(totals.counts.leased, 0);
        assert_eq!(self.setup.store.verify().await.unwrap(), vec![]);
    }
}

/// A request with the required fields, and more.
pub(super) fn request(id: &str, profile: &str, more: &Value) -> Value {
    let mut request = json!({
        "version": "1.0", "request_id": id, "customer": "acme", "profile_ref": profile,
        "prompt": "hi",
    });
    for (key, value) in more.as_object().unwrap() {
        request[key] = value.clone();
    }
    request
}

/// A request that is answered in acme's reply queue `r`.
pub(super) fn with_reply_queue(id: &str, profile: &str, more: &Value) -> String {
    let mut request = request(id, profile, more);
    request["reply_queue"] = json!({ "library": "ACME_5DTA", "name": "r" });
    request.to_string()
}

/// The next reply.
pub(super) async fn next_reply(inbox: &Inbox) -> Reply {
    let payload = inbox.receive(LONG).await.unwrap().expect("a reply");
    Reply::parse(payload.as_bytes()).unwrap()
}

/// Whether no reply is waiting.
pub(super) async fn is_empty(inbox: &Inbox) -> bool {
    inbox.receive(Duration::ZERO).await.unwrap().is_none()
}

/// The code of an error reply, or the text of any other.
pub(super) fn code_or_text(reply: &Reply) -> &str {
    match &reply.body {
        ReplyBody::Success(success) => &success.response,
        ReplyBody::Error(failure) => failure.code.as_str(),
        ReplyBody::Partial(piece) => piece,
    }
}
