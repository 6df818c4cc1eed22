//! Takes over from processes of this host that ended without closing their sessions, as after
//! `kill -9`. Their units need not wait for the ttl: the system knows that the process has ended.
//!
//! Every worker with services does this without being elected: the leader may run on another host, or
//! may be the process that ended. Each second it checks the processes of its host that it knows from
//! the store's list of sessions. A session ends only after the processes that its worker started have
//! ended too. If there is any doubt, such as with a process of another host or container, the ttl
//! decides.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::failure_detector::{SessionBeats, StalledSession};
use longshore_core::worker_session::Session;
use longshore_core::{Error, Result, SessionId, Store};
use longshore_process::{ProcessIdentity, ProcessState};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

/// The first and the longest wait for child processes of a worker that ended.
const CHILDREN_WAIT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// After this long without a heartbeat, at most, a worker is reported as silent.
const MAX_SILENCE: Duration = Duration::from_secs(10);
/// A store that takes longer to list the sessions is stalled.
const SLOW_ANSWER: Duration = Duration::from_secs(2);

/// Time between two checks of the processes of this host.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two reads of the list of sessions. A process that ends sooner after its start may have
/// to wait for the ttl.
const LIST_INTERVAL: Duration = Duration::from_secs(10);
/// Time limit of a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// The takeover from processes of this host.
pub(super) struct Takeover {
    store: Arc<dyn Store>,
    /// Sessions that were reported as waiting for their child processes.
    reported: HashSet<SessionId>,
}

impl Takeover {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, reported: HashSet::new() }
    }

    /// Ends the sessions of processes that have ended. Returns the other sessions, or `None` if it
    /// must run again: child processes are still ending, or a session has changed meanwhile.
    pub(super) async fn run_once(&mut self) -> Result<Option<Vec<Session>>> {
        let sessions = self.store.sessions().await?;
        let LocalDeaths { ended, ending, .. } = LocalDeaths::among(&sessions).await?;
        for session in ending.iter().filter(|session| self.reported.insert(session.id)) {
            let Session { label, held, .. } = session;
            tracing::warn!(
                "worker {label} has ended; waiting for its child processes to end before its {held} units run again"
            );
        }
        for session in &ended {
            let taken = self.store.reclaim(&[session.stalled()]).await?;
            if taken.sessions > 0 {
                let (label, units) = (&session.label, taken.requeued + taken.failed);
                tracing::info!("worker {label} has ended; took over its {units} units");
            }
        }
        Ok((ended.is_empty() && ending.is_empty()).then_some(sessions))
    }

    /// Takes over from every process of this host that ends, until the future is dropped. Reports
    /// workers that send no heartbeat when it starts: their units wait for the ttl.
    pub(super) async fn run(mut self) {
        let sessions = self.take_over_all().await;
        let (store, earlier) = (Arc::clone(&self.store), sessions.clone());
        let watch = async {
            let mut sessions = sessions;
            loop {
                until_local_death(sessions).await;
                sessions = self.take_over_all().await;
            }
        };
        tokio::join!(watch, async {
            if let Err(error) = report_silent(&store, earlier).await {
                tracing::debug!(%error, "cannot look for silent workers");
            }
        });
    }

    /// Runs until every process of this host that ended is taken over from. Returns the other sessions.
    async fn take_over_all(&mut self) -> Vec<Session> {
        let mut wait = CHILDREN_WAIT.0;
        loop {
            match self.run_once().await {
                Ok(Some(sessions)) => return sessions,
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "cannot look for workers that ended"),
            }
            sleep(wait).await;
            wait = (wait * 2).min(CHILDREN_WAIT.1);
        }
    }
}

/// Returns when a process of this host has ended, or when the list of sessions is out of date.
async fn until_local_death(mut sessions: Vec<Session>) {
    let began = Instant::now();
    while began.elapsed() < LIST_INTERVAL {
        if let Ok(LocalDeaths { running, ended, ending }) = LocalDeaths::among(&sessions).await {
            if !ended.is_empty() || !ending.is_empty() {
                return;
            }
            // The processes of other hosts are not checked again.
            sessions = running;
        }
        sleep(CHECK_INTERVAL).await;
    }
}

/// Reports workers that hold units and send no heartbeat for two intervals.
async fn report_silent(store: &Arc<dyn Store>, earlier: Vec<Session>) -> Result<()> {
    // This process itself is alive, whatever its store does.
    let own = ProcessIdentity::current().map(|own| own.to_string());
    let earlier: Vec<Session> =
        earlier.into_iter().filter(|session| session.process.is_none() || session.process != own).collect();
    let holders = earlier.iter().filter(|session| session.held > 0);
    let Some(wait) = holders.map(|session| session.ttl / 3).max() else { return Ok(()) };
    sleep(wait.min(MAX_SILENCE)).await;
    let asked = Instant::now();
    let sessions = store.sessions().await?;
    // A store that answers late records no heartbeats either.
    if asked.elapsed() > SLOW_ANSWER {
        return Ok(());
    }
    for Session { id, beats, label, held, ttl, .. } in sessions {
        let is_silent = |session: &Session| (session.id, session.beats) == (id, beats);
        if held > 0 && earlier.iter().any(is_silent) {
            tracing::warn!(
                "worker {label} sends no heartbeat; its {held} units run again {ttl:?} after its last one"
            );
        }
    }
    Ok(())
}

/// A session that may name its process.
pub(super) trait ProcessSession: Clone + Send + 'static {
    /// The identity of its process.
    fn process(&self) -> Option<&str>;

    /// The session as the store ends it.
    fn stalled(&self) -> StalledSession;
}

impl ProcessSession for Session {
    fn process(&self) -> Option<&str> {
        self.process.as_deref()
    }

    fn stalled(&self) -> StalledSession {
        StalledSession { session: self.id, beats: self.beats }
    }
}

impl ProcessSession for SessionBeats {
    fn process(&self) -> Option<&str> {
        self.process.as_deref()
    }

    fn stalled(&self) -> StalledSession {
        StalledSession { session: self.session, beats: self.beats }
    }
}

/// Sessions by the state of their processes, if these are of this host.
#[derive(Debug)]
pub(super) struct LocalDeaths<S> {
    /// Their child processes have ended too.
    pub(super) ended: Vec<S>,
    /// Their child processes are being killed.
    ending: Vec<S>,
    /// Sessions of processes of this host that run.
    running: Vec<S>,
}

impl<S: ProcessSession> LocalDeaths<S> {
    const NONE: Self = Self { ended: Vec::new(), ending: Vec::new(), running: Vec::new() };

    /// Checks the processes of these sessions, if any names its process. The check has a thread of its
    /// own: handlers may occupy all blocking threads of the runtime.
    pub(super) async fn among(sessions: &[S]) -> Result<Self> {
        let named: Vec<S> = sessions.iter().filter(|session| session.process().is_some()).cloned().collect();
        if named.is_empty() {
            return Ok(Self::NONE);
        }
        let (reply, checked) = oneshot::channel();
        std::thread::Builder::new()
            .name("longshore-takeover".to_owned())
            .spawn(move || _ = reply.send(Self::check(named)))
            .map_err(|error| Error::unavailable(format!("cannot start a thread: {error}")))?;
        let late =
            || Error::timed_out(format!("processes of this host not checked within {CHECK_TIMEOUT:?}"));
        timeout(CHECK_TIMEOUT, checked).await.map_err(|_| late())?.map_err(|_| late())
    }

    fn check(named: Vec<S>) -> Self {
        let mut deaths = Self::NONE;
        for session in named {
            let process: Option<ProcessIdentity> = session.process().and_then(|text| text.parse().ok());
            match process.map(|process| process.state()) {
                Some(ProcessState::Ended) => deaths.ended.push(session),
                Some(ProcessState::ChildrenEnding) => deaths.ending.push(session),
                Some(ProcessState::Running) => deaths.running.push(session),
                Some(ProcessState::Unknown) | None => {}
            }
        }
        deaths
    }
}
