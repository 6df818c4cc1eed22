//! A desk with a worker before it, on paused time that the store follows.

use std::sync::Arc;
use std::time::Duration;

use longshore::ledger::{Call, CallStatus, Ledger};
use longshore::store::{Inspect, Queues};
use longshore::{
    Client, Clock, Heartbeat, Kind, MemoryStore, NewUnit, Payload, Policy, QueueName, RetryPolicy,
    Scope, Store, Timestamp, Unit, UnitId, Worker, WorkerBuilder,
};
use longshore_ai::contract::{Libraries, Reply, Said};
use longshore_ai::worker::{Inbox, KIND, QUEUE, RequestHandler};
use longshore_ai::{NoPrompts, Prompts};
use longshore_testkit::ManualClock;
use longshore_testkit::standstill::{StandstillLedger, StandstillStore, Tripwire};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::asking::rig::{Rig, tenant};

/// Follows tokio's clock, so that paused time moves the store too.
struct TokioClock {
    began: Instant,
    base: ManualClock,
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.base.now() + self.began.elapsed()
    }
}

/// Where requests are answered.
pub(super) struct Office {
    pub(super) rig: Rig,
    pub(super) client: Client,
    pub(super) clock: Arc<dyn Clock>,
    prompts: Arc<dyn Prompts>,
}

/// Long enough for anything that comes at all, on paused time.
pub(super) const LONG: Duration = Duration::from_secs(90);

impl Office {
    pub(super) fn new() -> Self {
        Self::reading(NoPrompts)
    }

    /// An office that finds prompts there.
    pub(super) fn reading(prompts: impl Prompts) -> Self {
        let clock: Arc<dyn Clock> =
            Arc::new(TokioClock { began: Instant::now(), base: ManualClock::default() });
        let rig = Rig::on(MemoryStore::new(Arc::clone(&clock)));
        let client = Client::new(Arc::clone(&rig.store) as _);
        Self { rig, client, clock, prompts: Arc::new(prompts) }
    }

    pub(super) fn worker(&self) -> WorkerBuilder {
        self.worker_on(Arc::clone(&self.rig.store) as _, Arc::clone(&self.rig.store) as _)
    }

    /// A worker that sees store and ledger through a tripwire.
    pub(super) fn worker_with(&self, wire: &Arc<Tripwire>) -> WorkerBuilder {
        let store = StandstillStore::new(Arc::clone(&self.rig.store) as _, Arc::clone(wire));
        let ledger = StandstillLedger::new(Arc::clone(&self.rig.store) as _, Arc::clone(wire));
        self.worker_on(Arc::new(store), Arc::new(ledger))
    }

    fn worker_on(&self, store: Arc<dyn Store>, ledger: Arc<dyn Ledger>) -> WorkerBuilder {
        let handler = RequestHandler::new(
            self.rig.desk.clone(),
            ledger,
            Libraries::default(),
            Arc::clone(&self.prompts),
            Arc::clone(&self.clock),
        );
        // As `longshore ai worker` has it.
        let policy = Policy { retry: RetryPolicy::never(), max_lost: 5, ..Policy::default() };
        Worker::builder(store)
            .slots(8)
            // A thread's clock does not follow paused time.
            .heartbeat(Heartbeat::Task)
            .queues(Queues::Named(vec![QueueName::new(QUEUE).unwrap()]))
            .handle_erased(Kind::new(KIND).unwrap(), policy, Arc::new(handler))
    }

    /// Answers all that wait.
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
        let store = &self.rig.store;
        Inbox::open(Arc::clone(store) as _, Arc::clone(store) as _, tenant(owner), name)
            .await
            .unwrap()
    }

    /// Puts a request into the queue, whatever it says.
    pub(super) async fn send(&self, owner: &str, payload: impl Into<Vec<u8>>) -> UnitId {
        let unit = NewUnit {
            tenant: tenant(owner),
            queue: QueueName::new(QUEUE).unwrap(),
            ..NewUnit::new(Kind::new(KIND).unwrap(), Payload::from(payload.into()))
        };
        self.client.send(unit).await.unwrap()
    }

    pub(super) async fn unit(&self, id: UnitId) -> Unit {
        self.rig.store.unit(&Scope::All, id).await.unwrap()
    }

    /// The failure of a unit: its code and its words.
    pub(super) async fn failure(&self, id: UnitId) -> (String, String) {
        let failure = self.unit(id).await.failure.expect("it failed");
        (failure.code, failure.message)
    }

    /// Calls in the books, the oldest first: of which request, and what it came to.
    pub(super) async fn books(&self) -> Vec<(String, CallStatus)> {
        let told = |call: Call| (call.call.request_id, call.status);
        self.rig.calls().await.into_iter().map(told).collect()
    }

    /// Nothing is left open: no call, no lease, no contradiction in the store.
    pub(super) async fn is_clean(&self) {
        let open: Vec<_> = self.rig.calls().await;
        let open: Vec<_> = open.iter().filter(|call| call.status == CallStatus::Open).collect();
        assert!(open.is_empty(), "{open:?}");
        let totals = self.rig.store.totals(&Scope::All, &Queues::All).await.unwrap();
        assert_eq!(totals.counts.leased, 0);
        assert_eq!(self.rig.store.verify().await.unwrap(), vec![]);
    }
}

/// A request with what the contract demands, and more.
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

/// The same, to be answered in acme's reply queue `r`.
pub(super) fn answered(id: &str, profile: &str, more: &Value) -> String {
    let mut request = request(id, profile, more);
    request["reply_queue"] = json!({ "library": "ACME_5DTA", "name": "r" });
    request.to_string()
}

/// The next reply.
pub(super) async fn next(inbox: &Inbox) -> Reply {
    let payload = inbox.receive(LONG).await.unwrap().expect("a reply");
    Reply::parse(payload.as_bytes()).unwrap()
}

/// Nothing more is there.
pub(super) async fn is_empty(inbox: &Inbox) -> bool {
    inbox.receive(Duration::ZERO).await.unwrap().is_none()
}

/// The code of a reply that is an error, or the text of one that is not.
pub(super) fn said(reply: &Reply) -> &str {
    match &reply.said {
        Said::Success(success) => &success.response,
        Said::Error(failure) => failure.code.as_str(),
        Said::Partial(piece) => piece,
    }
}
