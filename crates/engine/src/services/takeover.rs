//! Takes over from processes of this host that ended without closing their sessions, as after
//! `kill -9`. Their units need not wait for the ttl: the system knows that the process has ended.
//!
//! Every worker with services does this once when it starts, without being elected: the process that
//! led may be the one that ended. Afterwards the leader's rescuer does it with every poll. A session
//! ends only after the processes that its worker started have ended too. If there is any doubt, such
//! as with a process of another host or container, the ttl decides.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::failure_detector::{SessionBeats, StalledSession};
use longshore_core::worker_session::Session;
use longshore_core::{Result, SessionId, Store};
use longshore_process::{ProcessIdentity, ProcessState};
use tokio::time::Instant;

/// The first and the longest wait for child processes of a worker that ended.
const CHILDREN_WAIT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// After this long without a heartbeat, at most, a worker is reported as silent.
const MAX_SILENCE: Duration = Duration::from_secs(10);
/// A store that takes longer to list the sessions is stalled.
const SLOW_ANSWER: Duration = Duration::from_secs(2);

/// The takeover when a worker starts.
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
        let LocalDeaths { ended, ending } = LocalDeaths::among(&sessions).await;
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

    /// Runs until every process of this host that ended is taken over from. Then reports workers that
    /// send no heartbeat: their units wait for the ttl.
    pub(super) async fn run(mut self) {
        let mut wait = CHILDREN_WAIT.0;
        let sessions = loop {
            match self.run_once().await {
                Ok(Some(sessions)) => break sessions,
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "cannot look for workers that ended"),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(CHILDREN_WAIT.1);
        };
        if let Err(error) = self.report_silent(&sessions).await {
            tracing::debug!(%error, "cannot look for silent workers");
        }
    }

    /// Reports workers that hold units and send no heartbeat for two intervals.
    async fn report_silent(&self, earlier: &[Session]) -> Result<()> {
        let holders = earlier.iter().filter(|session| session.held > 0);
        let Some(wait) = holders.map(|session| session.ttl / 3).max() else { return Ok(()) };
        tokio::time::sleep(wait.min(MAX_SILENCE)).await;
        let asked = Instant::now();
        let sessions = self.store.sessions().await?;
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

/// Sessions of processes of this host that have ended.
#[derive(Debug)]
pub(super) struct LocalDeaths<S> {
    /// Their child processes have ended too.
    pub(super) ended: Vec<S>,
    /// Their child processes are being killed.
    ending: Vec<S>,
}

impl<S: ProcessSession> LocalDeaths<S> {
    const NONE: Self = Self { ended: Vec::new(), ending: Vec::new() };

    /// Checks the processes of these sessions, if any names its process.
    pub(super) async fn among(sessions: &[S]) -> Self {
        let named: Vec<S> = sessions.iter().filter(|session| session.process().is_some()).cloned().collect();
        if named.is_empty() {
            return Self::NONE;
        }
        tokio::task::spawn_blocking(|| Self::check(named)).await.unwrap_or(Self::NONE)
    }

    fn check(named: Vec<S>) -> Self {
        let mut deaths = Self::NONE;
        for session in named {
            let process: Option<ProcessIdentity> = session.process().and_then(|text| text.parse().ok());
            match process.map(|process| process.state()) {
                Some(ProcessState::Ended) => deaths.ended.push(session),
                Some(ProcessState::ChildrenEnding) => deaths.ending.push(session),
                Some(ProcessState::Running | ProcessState::Unknown) | None => {}
            }
        }
        deaths
    }
}
