//! The heartbeat: one per process. Says that we live, hears what others want, and renews a session
//! that was ended.
//!
//! Waits for nothing but its own calls: neither handlers nor the settler can delay it. Where it
//! runs is `pulse`'s part.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::session::{Lease, Order};
use longshore_core::store::{Beat, BeatAnswer, Finish};
use longshore_core::{Error, Outcome, Result, SessionId};

use crate::backoff::Backoff;
use crate::cpu::cpu_time;
use crate::station::Station;

/// Beats until the task is dropped.
pub(crate) async fn beat(station: Arc<Station>) {
    let every = interval(station.settings.ttl);
    let backoff = Backoff::store();
    let mut heart = Heart { station, every, surplus: 0, carried: None, backoff };
    let mut wait = every;
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = heart.station.renew.notified() => {}
        }
        wait = match heart.station.desk.session() {
            Some(session) => heart.beat(session).await,
            None => heart.renew().await,
        };
    }
}

/// Six beats per ttl, so that five may be missed; between 1 and 5 s where the ttl allows it.
fn interval(ttl: Duration) -> Duration {
    let least = Duration::from_secs(1).min(ttl / 4);
    (ttl / 6).clamp(least, Duration::from_secs(5))
}

struct Heart {
    station: Arc<Station>,
    every: Duration,
    /// Beats in a row at which the store counted more leases than we know.
    surplus: u32,
    /// An operator's order to a former session that the present one does not know of yet.
    carried: Option<Order>,
    backoff: Backoff,
}

impl Heart {
    /// Beats once; returns how long to wait for the next.
    async fn beat(&mut self, session: SessionId) -> Duration {
        let station = Arc::clone(&self.station);
        let known = station.desk.known();
        self.carry_over(session).await;
        let progress = station.desk.progress();
        let beat = Beat { cpu: cpu_time(), progress: progress.clone() };
        match station.store().beat(session, beat).await {
            Ok(answer) => {
                station.store_answered();
                self.backoff.reset();
                self.heed(session, answer, known).await;
                self.every
            }
            Err(Error::SessionGone(_)) => {
                station.session_gone(session);
                Duration::ZERO
            }
            Err(error) => {
                station.desk.keep_progress(progress);
                station.store_failed(&error);
                self.backoff.next_wait().min(self.every)
            }
        }
    }

    /// What an operator told the worker holds for its next session too, until it is lifted.
    async fn carry_over(&mut self, session: SessionId) {
        if let Some(order) = self.carried
            && self.station.store().order(session, order).await.is_ok()
        {
            self.carried = None;
        }
    }

    async fn heed(&mut self, session: SessionId, answer: BeatAnswer, known_before: usize) {
        let station = Arc::clone(&self.station);
        if self.carried.is_none() {
            station.control.ordered(answer.order);
        }
        station.desk.cancel(&answer.cancel);
        let mut back = station.desk.take_unwanted(&answer.unwanted);
        back.extend(station.desk.take_unwanted(&answer.cancel));
        if !back.is_empty() {
            // Bounded: giving back must not hold up the next beat.
            let _ = tokio::time::timeout(self.every, station.release(back)).await;
        }
        let known = known_before.max(station.desk.known());
        let more = usize::try_from(answer.held).unwrap_or(usize::MAX) > known;
        self.surplus = if more { self.surplus + 1 } else { 0 };
        if self.surplus >= 2 {
            let _ = tokio::time::timeout(self.every, self.return_forgotten(session)).await;
        }
    }

    /// Gives back leases that the store counts and we do not know: a claim's answer was lost.
    async fn return_forgotten(&mut self, session: SessionId) {
        let station = Arc::clone(&self.station);
        // With a claim under way its units would look forgotten. Then the next beat tries again.
        let Ok(_no_claim) = station.claiming.try_lock() else {
            return;
        };
        match forgotten(&station, session).await {
            Ok(leases) if leases.is_empty() => self.surplus = 0,
            Ok(leases) => {
                tracing::warn!(units = leases.len(), "returning units whose claim was not heard");
                if let Err(error) = give_back(&station, session, leases).await {
                    tracing::debug!(%error, "they could not be returned yet");
                }
            }
            Err(error) => tracing::debug!(%error, "cannot compare leases yet"),
        }
    }

    /// Opens a new session in place of one that is gone.
    async fn renew(&mut self) -> Duration {
        let session = SessionId::new();
        match self.station.store().open_session(self.station.introduction(session)).await {
            Ok(()) => {
                self.station.store_answered();
                self.backoff.reset();
                let order = self.station.control.operators_order();
                self.carried = Some(order).filter(|order| *order > Order::Work);
                self.station.desk.open(session);
                self.carry_over(session).await;
                self.every
            }
            Err(error) => {
                self.station.store_failed(&error);
                self.backoff.next_wait()
            }
        }
    }
}

/// Leases of ours that we know nothing of, neither before nor after asking.
async fn forgotten(station: &Station, session: SessionId) -> Result<Vec<Lease>> {
    let mut known: HashSet<Lease> = station.desk.leases().into_iter().collect();
    let held = station.store().held(session).await?;
    known.extend(station.desk.leases());
    Ok(held.into_iter().filter(|lease| !known.contains(lease)).collect())
}

/// Unstarted ones are released; what is then still there had been started.
async fn give_back(station: &Station, session: SessionId, leases: Vec<Lease>) -> Result<()> {
    let store = station.store();
    store.release(session, &leases).await?;
    let still: HashSet<Lease> = store.held(session).await?.into_iter().collect();
    let interrupted = |lease| Finish::new(lease, Outcome::Interrupted);
    let finishes: Vec<Finish> =
        leases.into_iter().filter(|lease| still.contains(lease)).map(interrupted).collect();
    if !finishes.is_empty() {
        store.finish(session, finishes).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_beats_fit_into_every_ttl() {
        let seconds = |ttl| interval(Duration::from_secs(ttl)).as_secs_f64();
        assert_eq!(seconds(15), 2.5);
        assert_eq!(seconds(60), 5.0);
        assert_eq!(seconds(3), 0.75);
        assert_eq!(seconds(1), 0.25);
    }
}
