//! Ends of runs, on their way into the store: whatever has gathered goes in one call, two calls at a
//! time, so that one is written while the other is brought to disk.
//!
//! While others run, ends gather for a moment: a commit for each would cost more than everything else.
//! Nobody waits for them meanwhile, since workers have something to do. The last one goes at once, and
//! so does that of a script that was submitted alone: somebody may wait for it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use longshore::session::Lease;
use longshore::store::{Finish, Finished};
use longshore::{Backoff, Error, Failure, Outcome, SessionId, Store};
use tokio::time::Instant;

use super::core::next_of;
use crate::board::SeatId;

/// Ends in one call.
const AT_ONCE: usize = 1000;
/// Calls under way.
const CALLS: usize = 2;
/// How long ends gather while others run.
const GATHER: Duration = Duration::from_millis(100);

/// An end, and who must hear that it is recorded.
pub(super) struct Noted {
    pub(super) lease: Lease,
    pub(super) worker: Option<(SeatId, Lease)>,
}

/// What became of a call.
pub(super) struct Settled {
    pub(super) ends: Vec<(Noted, Finished)>,
    pub(super) session_gone: bool,
}

/// The ends of a server.
pub(super) struct Ends {
    store: Arc<dyn Store>,
    session: SessionId,
    gathered: Vec<(Finish, Noted)>,
    /// When they are to go.
    due: Option<Instant>,
    settling: HashSet<Lease>,
    calls: FuturesUnordered<BoxFuture<'static, Settled>>,
}

impl Ends {
    pub(super) fn new(store: Arc<dyn Store>, session: SessionId) -> Self {
        Self {
            store,
            session,
            gathered: Vec::new(),
            due: None,
            settling: HashSet::new(),
            calls: FuturesUnordered::new(),
        }
    }

    pub(super) fn push(&mut self, finish: Finish, worker: Option<(SeatId, Lease)>) {
        let noted = Noted { lease: finish.lease, worker };
        self.settling.extend(worker.map(|(_, told)| told));
        self.gathered.push((finish, noted));
        self.due.get_or_insert_with(|| Instant::now() + GATHER);
    }

    /// What has gathered shall go at once.
    pub(super) fn hurry(&mut self) {
        self.due = self.due.map(|_| Instant::now());
    }

    /// Whether the end of what a worker knows by this lease is on its way.
    pub(super) fn is_settling(&self, told: Lease) -> bool {
        self.settling.contains(&told)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.gathered.is_empty() && self.calls.is_empty()
    }

    /// Begins a call with what has gathered long enough, if there may be one more.
    pub(super) fn flush_due(&mut self) {
        let gathering = self.due.is_some_and(|due| Instant::now() < due);
        if !gathering || self.gathered.len() >= AT_ONCE {
            self.flush();
        }
    }

    /// Begins a call with what has gathered, if there may be one more.
    pub(super) fn flush(&mut self) {
        while self.calls.len() < CALLS && !self.gathered.is_empty() {
            self.due = None;
            let count = self.gathered.len().min(AT_ONCE);
            let ends: Vec<(Finish, Noted)> = self.gathered.drain(..count).collect();
            self.calls.push(Box::pin(settle(Arc::clone(&self.store), self.session, ends)));
        }
        if !self.gathered.is_empty() {
            self.due.get_or_insert_with(Instant::now);
        }
    }

    /// The end of a call; `None` if it is time to flush.
    pub(super) async fn next(&mut self) -> Option<Settled> {
        let due = self.due.filter(|_| self.calls.len() < CALLS);
        let settled = tokio::select! {
            settled = next_of(&mut self.calls) => settled,
            () = at(due) => return None,
        };
        for (noted, _) in &settled.ends {
            if let Some((_, told)) = noted.worker {
                self.settling.remove(&told);
            }
        }
        Some(settled)
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn settle(store: Arc<dyn Store>, session: SessionId, ends: Vec<(Finish, Noted)>) -> Settled {
    let (finishes, noted): (Vec<Finish>, Vec<Noted>) = ends.into_iter().unzip();
    let mut backoff = Backoff::store();
    loop {
        match store.finish(session, finishes.clone()).await {
            Ok(answers) => {
                let ends = noted.into_iter().zip(answers).collect();
                return Settled { ends, session_gone: false };
            }
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, "ends cannot be recorded at the moment");
                backoff.wait().await;
            }
            Err(Error::SessionGone(_)) => {
                let lost = noted.into_iter().map(|noted| (noted, Finished::LeaseLost)).collect();
                return Settled { ends: lost, session_gone: true };
            }
            Err(error) if finishes.len() == 1 => {
                tracing::error!(%error, "an end cannot be recorded");
                let failure = Failure::new("unrecordable", error.to_string());
                let bare = vec![Finish::new(finishes[0].lease, Outcome::Fail(failure))];
                let answer = store.finish(session, bare).await.ok().and_then(|mut all| all.pop());
                let answer = answer.unwrap_or(Finished::LeaseLost);
                let ends = noted.into_iter().map(|noted| (noted, answer.clone())).collect();
                return Settled { ends, session_gone: false };
            }
            Err(error) => {
                tracing::warn!(%error, "ends are recorded one by one");
                return one_by_one(&store, session, finishes, noted).await;
            }
        }
    }
}

async fn one_by_one(
    store: &Arc<dyn Store>,
    session: SessionId,
    finishes: Vec<Finish>,
    noted: Vec<Noted>,
) -> Settled {
    let mut all = Settled { ends: Vec::new(), session_gone: false };
    for end in finishes.into_iter().zip(noted) {
        let settled = Box::pin(settle(Arc::clone(store), session, vec![end])).await;
        all.ends.extend(settled.ends);
        all.session_gone |= settled.session_gone;
    }
    all
}
