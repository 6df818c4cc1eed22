use std::sync::Arc;

use longshore::worker_session::NewSession;
use longshore::{
    Enqueue as _, Kind, MemoryStore, NewUnit, Payload, Queries as _, Scope, SessionId, Store, Unit,
    UnitState, WorkerApi as _,
};
use longshore_testkit::{Fault, FaultyStore};
use tokio::sync::{mpsc, oneshot, watch};

use super::*;
use crate::request::WorkerAction;
use crate::script::{KIND, RunEnd};
use crate::server::Timing;
use crate::server::core::Event;
use crate::server::worker_connection::ConnectionId;
use crate::wire::{FromWorker, Register, TaskEvent, WorkerLoad};

/// Longer than the wait for an exit reason, and than [`ADOPTION_WAIT`].
const REST_OF_RUN: u64 = 40;

/// A worker that a launcher started, as the core sees it.
struct LaunchedWorker {
    events: mpsc::Sender<Event>,
    connection: ConnectionId,
    messages: mpsc::UnboundedReceiver<ToWorker>,
}

impl LaunchedWorker {
    async fn register(events: &mpsc::Sender<Event>, connection: u64, held_leases: Vec<Lease>) -> Self {
        let register = Register {
            uid: "w".into(),
            host: "here".into(),
            launch: Some(1),
            threads: 1,
            held_leases,
            ..Register::default()
        };
        let (sender, messages) = mpsc::unbounded_channel();
        let worker = Self { events: events.clone(), connection: ConnectionId(connection), messages };
        worker.notify(Event::Registered(worker.connection, Box::new(register), sender)).await;
        worker
    }

    async fn notify(&self, event: Event) {
        assert!(self.events.send(event).await.is_ok(), "the core runs");
    }

    async fn send(&self, message: FromWorker) {
        self.notify(Event::Message(self.connection, message)).await;
    }

    async fn report(&self, event: TaskEvent) {
        self.send(FromWorker::TaskEvents(vec![event])).await;
    }

    async fn lease(&mut self) -> Lease {
        loop {
            if let ToWorker::Run(orders) = self.messages.recv().await.unwrap() {
                return orders[0].lease;
            }
        }
    }

    /// Runs on for a while and returns the server's messages beside the acknowledged heartbeats.
    async fn run_on(&mut self) -> Vec<ToWorker> {
        for _ in 0..REST_OF_RUN {
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.send(FromWorker::Heartbeat(WorkerLoad::default())).await;
        }
        let messages = std::iter::from_fn(|| self.messages.try_recv().ok());
        messages.filter(|message| *message != ToWorker::HeartbeatReceived).collect()
    }

    async fn wait_until_recorded(&mut self, lease: Lease) {
        loop {
            match self.messages.recv().await.unwrap() {
                ToWorker::ResultsRecorded(leases) if leases.contains(&lease) => return,
                ToWorker::ResultsRecorded(_) | ToWorker::HeartbeatReceived => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

fn success() -> RunReport {
    RunReport {
        end: RunEnd::Exited(0),
        host: "here".into(),
        queued: 0,
        started: 1,
        ended: 2,
        cpu: Duration::ZERO,
        peak_memory: 0,
        tail: String::new(),
        remarks: Vec::new(),
        output: None,
    }
}

/// A worker with a script is cut off, counted as lost and comes back. The script ends long after that.
async fn unit_of_a_returned_worker(exit_reason_timeout: Duration, faults: &[(u64, Fault)]) -> Unit {
    let memory = Arc::new(MemoryStore::default());
    let session = SessionId::new();
    memory.open_session(NewSession::new(session, "test")).await.unwrap();
    let script = serde_json::json!({ "path": "/job.sh", "dir": "/" });
    let unit = NewUnit::new(Kind::new(KIND).unwrap(), Payload::json(&script).unwrap());
    let id = unit.id;
    memory.send(&Scope::All, vec![unit]).await.unwrap();
    let store = FaultyStore::new(Arc::clone(&memory) as Arc<dyn Store>);
    let plan = |store: FaultyStore, (nth, fault): &(u64, Fault)| store.with_fault("finish", *nth, *fault);
    let store = Arc::new(faults.iter().fold(store, plan));
    let core = Core::new(store, session, Timing::default(), watch::Sender::new(0));
    let core = core.with_exit_reason_timeout(exit_reason_timeout);
    let (events, receiver) = mpsc::channel(16);
    let worker = async {
        let mut cut_off = LaunchedWorker::register(&events, 1, Vec::new()).await;
        let lease = cut_off.lease().await;
        cut_off.report(TaskEvent::Started(lease)).await;
        cut_off.notify(Event::Disconnected(cut_off.connection)).await;
        tokio::time::sleep(Timing::default().reconnect_grace + Duration::from_secs(2)).await;
        let mut back = LaunchedWorker::register(&events, 2, vec![lease]).await;
        back.report(TaskEvent::Started(lease)).await;
        let messages = back.run_on().await;
        assert!(
            matches!(&messages[..], [ToWorker::Registered { forget, .. }] if forget.is_empty()),
            "the script is neither stopped nor started again: {messages:?}"
        );
        back.report(TaskEvent::Ended(lease, Box::new(success()))).await;
        back.wait_until_recorded(lease).await;
    };
    tokio::select! {
        _ = core.run(receiver) => panic!("the core ended"),
        () = worker => {}
    }
    memory.unit(&Scope::All, id).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_was_drained_while_it_was_cut_off_is_told_when_it_returns() {
    let store = Arc::new(MemoryStore::default());
    let session = SessionId::new();
    store.open_session(NewSession::new(session, "test")).await.unwrap();
    let core = Core::new(store, session, Timing::default(), watch::Sender::new(0));
    let (events, receiver) = mpsc::channel(16);
    let limit = Duration::from_secs(90);
    let worker = async {
        let cut_off = LaunchedWorker::register(&events, 1, Vec::new()).await;
        cut_off.notify(Event::Disconnected(cut_off.connection)).await;
        let (answer, drained) = oneshot::channel();
        cut_off.notify(Event::Workers(vec!["here".into()], WorkerAction::Drain(limit), answer)).await;
        assert_eq!(drained.await.unwrap().unwrap().len(), 1);
        let mut back = LaunchedWorker::register(&events, 2, Vec::new()).await;
        let messages = back.run_on().await;
        assert!(messages.contains(&ToWorker::Drain(limit)), "{messages:?}");
    };
    tokio::select! {
        _ = core.run(receiver) => panic!("the core ended"),
        () = worker => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_returns_before_its_exit_reason_is_known_keeps_its_script() {
    let unit = unit_of_a_returned_worker(Duration::from_secs(30), &[]).await;
    assert_eq!((unit.state, unit.attempt), (UnitState::Done, 1));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_returns_before_its_loss_is_written_keeps_its_script() {
    let slow = [(1, Fault::Delay(ADOPTION_WAIT + Duration::from_secs(8)))];
    let unit = unit_of_a_returned_worker(Duration::ZERO, &slow).await;
    assert_eq!((unit.state, unit.attempt), (UnitState::Done, 2));
}
