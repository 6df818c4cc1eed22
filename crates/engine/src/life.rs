//! A worker's life: session opened, parts running, quiet, drain, stop, session closed.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::session::Order;
use longshore_core::{Error, SessionId};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::backoff::Backoff;
use crate::pulse::{Heartbeat, Pulse};
use crate::services::{self, Services};
use crate::station::Station;
use crate::stats::WorkerReport;
use crate::worker::{Worker, WorkerError};
use crate::{executor, heartbeat, intake, settler};

/// How long a stopping worker tries to record what it still can, and to end its session.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Lives a worker's life.
pub(crate) async fn live(worker: Worker) -> Result<WorkerReport, WorkerError> {
    let station = Arc::new(Station::new(worker));
    if !open(&station).await? {
        return Ok(station.stats.report());
    }
    let mut parts = Parts::default();
    parts.start(&station);
    let ended = tokio::select! {
        () = wind_down(&station) => Ok(()),
        name = parts.ended() => Err(WorkerError::TaskEnded(name)),
    };
    parts.stop().await;
    let left = station.desk.known() as u64;
    close(&station).await;
    ended.map(|()| WorkerReport { left, ..station.stats.report() })
}

/// Announces the worker, waiting for a store that is away. False if it was told to end meanwhile.
async fn open(station: &Station) -> Result<bool, WorkerError> {
    let session = SessionId::new();
    let mut backoff = Backoff::store();
    while station.control.order() < Order::Drain {
        match station.store().open_session(station.introduction(session)).await {
            Ok(()) => {
                station.store_answered();
                station.desk.open(session);
                tracing::info!(%session, slots = station.settings.slots, "worker started");
                return Ok(true);
            }
            Err(error) if error.is_retryable() => station.store_failed(&error),
            Err(error) => return Err(error.into()),
        }
        let _ = timeout(backoff.next_wait(), station.control.reached(Order::Drain)).await;
    }
    Ok(false)
}

/// Returns once the worker has been told to end and holds nothing more, or can do no more.
async fn wind_down(station: &Station) {
    let Station { control, desk, settings, .. } = station;
    control.reached(Order::Drain).await;
    tokio::select! {
        () = desk.cleared() => return,
        () = control.reached(Order::Stop) => {}
    }
    desk.stop();
    // Runs drop their handlers after the grace themselves; a second more for those that can.
    let _ = timeout(settings.grace + Duration::from_secs(1), desk.at_rest()).await;
    desk.give_up_running();
    let _ = timeout(LAST_WORDS, desk.cleared()).await;
}

/// Ends the session: whatever it still holds goes back to the queue.
async fn close(station: &Station) {
    let Some(session) = station.desk.session() else {
        return;
    };
    let mut backoff = Backoff::store();
    let closing = async {
        loop {
            match station.store().close_session(session).await {
                Err(error) if error.is_retryable() => backoff.wait().await,
                answer => return answer,
            }
        }
    };
    match timeout(LAST_WORDS, closing).await {
        Ok(Ok(()) | Err(Error::SessionGone(_))) => tracing::info!(%session, "worker ended"),
        Ok(Err(error)) => tracing::error!(%error, %session, "the session could not be closed"),
        Err(_) => tracing::warn!(%session, "the store is away: the session is left to expire"),
    }
}

/// Passes on how many slots are wanted: what was said before the worker ran at once, the rest as
/// it comes.
fn resize(station: &Arc<Station>) -> impl Future<Output = ()> + use<> {
    let station = Arc::clone(station);
    let mut wanted = station.control.wanted_slots();
    let apply = |station: &Station, wanted: &mut watch::Receiver<Option<u32>>| {
        if let Some(slots) = *wanted.borrow_and_update() {
            station.desk.resize(slots);
        }
    };
    apply(&station, &mut wanted);
    async move {
        // The sender lives in the station.
        while wanted.changed().await.is_ok() {
            apply(&station, &mut wanted);
        }
    }
}

/// The worker's tasks. Dropping them drops all handlers.
#[derive(Default)]
struct Parts {
    tasks: JoinSet<&'static str>,
    pulse: Option<Pulse>,
}

impl Parts {
    fn start(&mut self, station: &Arc<Station>) {
        self.start_heart(station);
        self.spawn("resizer", resize(station));
        self.spawn("settler", settler::settle(Arc::clone(station)));
        self.spawn("executor", executor::execute(Arc::clone(station)));
        self.spawn("intake", intake::take_in(Arc::clone(station)));
        if station.settings.services == Services::All {
            self.start_services(station);
        }
    }

    fn start_heart(&mut self, station: &Arc<Station>) {
        if station.settings.heartbeat == Heartbeat::Thread {
            match Pulse::start(Arc::clone(station)) {
                Ok(pulse) => return self.pulse = Some(pulse),
                Err(error) => tracing::warn!(%error, "no thread for the heartbeat: it is a task"),
            }
        }
        self.spawn("heartbeat", heartbeat::beat(Arc::clone(station)));
    }

    fn start_services(&mut self, station: &Arc<Station>) {
        let session = {
            let station = Arc::clone(station);
            move || station.desk.session()
        };
        let (store, retention) = (Arc::clone(&station.settings.store), station.settings.retention);
        let services = services::all(store, session, Arc::clone(&station.scheduled), retention);
        self.spawn("services", services);
    }

    fn spawn(&mut self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(async move {
            part.await;
            name
        });
    }

    /// Returns the name of a part that ended, which none should.
    async fn ended(&mut self) -> &'static str {
        let Self { tasks, pulse } = self;
        let heart = async {
            match pulse {
                Some(pulse) => pulse.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = tasks.join_next() => match ended {
                Some(Ok(name)) => name,
                Some(Err(error)) => {
                    tracing::error!(%error, "a part of the worker broke");
                    "task"
                }
                None => "tasks",
            },
            () = heart => "heartbeat",
        }
    }

    async fn stop(mut self) {
        self.tasks.shutdown().await;
        if let Some(pulse) = self.pulse.take() {
            pulse.stop().await;
        }
    }
}
