//! Intake: claims units when there are slots for them, and a little ahead of that.
//!
//! Decides when to ask the store and for how much; the desk keeps what came. Never spins: with
//! nothing to claim it waits for the store's wake-up, and for its own slow poll.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::session::Order;
use longshore_core::store::{Claim, Claimed};
use longshore_core::{Counts, Error, Kind, Result};
use tokio::time::Instant;

use crate::backoff::{Backoff, jitter};
use crate::held::Ask;
use crate::pace::Pace;
use crate::station::Station;
use crate::worker::ClaimAhead;

/// The wait without news grows from the first to the second. A store that hears of others' commits
/// wakes us; one that does not comes back sooner by itself ([`longshore_core::store::Inspect::wake`]).
const POLL: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// How often a worker that keeps slots idle for a unit that must run alone looks whether it is
/// still there.
const PROBE: Duration = Duration::from_secs(2);
/// Claims that bring nothing are at least this far apart after a few in a row, however often the
/// store wakes us: with many workers every unit wakes all of them.
const FRUITLESS_GAP: Duration = Duration::from_millis(2);

/// Takes units in until the task is dropped.
pub(crate) async fn take_in(station: Arc<Station>) {
    let mut intake = Intake::new(station);
    loop {
        let order = intake.station.control.order();
        if order == Order::Work {
            intake.work().await;
        } else {
            intake.rest(order).await;
        }
    }
}

struct Intake {
    station: Arc<Station>,
    kinds: Vec<Kind>,
    pace: Pace,
    idle: Backoff,
    outage: Backoff,
    fruitless: u32,
    /// Where the store's wake-ups were when we last heard one.
    seen: u64,
}

/// What a claim came to.
enum Brought {
    /// As much as was asked for, or all that fits the slots: ask again when there is room.
    Enough,
    /// Less than would fit: nothing more to be had until the store says so.
    Little,
    /// Nothing, but with more free slots there may be something: for a heavy unit, or for units
    /// that are not given ahead.
    NotYet,
    /// Nothing; the store is away.
    Error,
}

impl Intake {
    fn new(station: Arc<Station>) -> Self {
        Self {
            kinds: station.settings.handlers.keys().cloned().collect(),
            station,
            pace: Pace::new(Instant::now()),
            idle: Backoff::new(POLL.0, POLL.1),
            outage: Backoff::store(),
            fruitless: 0,
            seen: 0,
        }
    }

    /// Quiet or more: gives back what has not started, then waits for another order.
    async fn rest(&mut self, order: Order) {
        let unstarted = self.station.desk.take_ahead();
        self.station.release(unstarted).await;
        self.station.control.left(order).await;
    }

    async fn work(&mut self) {
        let station = Arc::clone(&self.station);
        let Some(ask) = self.ask() else {
            tokio::select! {
                () = station.desk.room.notified() => {}
                () = tokio::time::sleep(PROBE), if station.desk.wants_empty() => {
                    self.probe().await;
                }
                () = station.control.left(Order::Work) => {}
            }
            return;
        };
        match self.claim(ask).await {
            Brought::Enough => {}
            // A unit that was passed over may fit once a resource is free.
            Brought::Little => self.wait_for_more(!station.settings.resources.is_empty()).await,
            Brought::NotYet => self.wait_for_more(true).await,
            Brought::Error => self.outage.wait().await,
        }
    }

    fn ask(&mut self) -> Option<Ask> {
        let Station { settings, stats, desk, waits, .. } = &*self.station;
        self.pace.observe(stats.ran(), Instant::now());
        let ahead = match settings.claim_ahead {
            ClaimAhead::Adaptive => self.pace.ahead(stats.mean_run(), settings.slots),
            ClaimAhead::Off => 0,
        };
        desk.ask(ahead, waits.restraint(desk.limit(), Instant::now()))
    }

    async fn claim(&mut self, ask: Ask) -> Brought {
        let station = Arc::clone(&self.station);
        let _claiming = station.claiming.lock().await;
        let answer = station.store().claim(self.describe(&ask)).await;
        self.place(ask, answer)
    }

    /// Looks whether the unit is still there for which slots are kept idle.
    async fn probe(&mut self) {
        let Some(ask) = self.station.desk.ask_if_wanted_empty() else {
            return;
        };
        if matches!(self.claim(ask).await, Brought::Error) {
            self.outage.wait().await;
        }
    }

    fn describe(&self, ask: &Ask) -> Claim {
        let settings = &self.station.settings;
        Claim {
            session: ask.session,
            scope: settings.scope.clone(),
            queues: settings.queues.clone(),
            batch: settings.batch.clone(),
            kinds: self.kinds.clone(),
            free: ask.free,
            slots: settings.slots,
            resources: ask.resources.clone(),
            all_resources: settings.resources.clone(),
            ahead: ask.ahead,
            empty_handed: ask.empty_handed,
            except: ask.except.clone(),
        }
    }

    fn place(&mut self, ask: Ask, answer: Result<Claimed>) -> Brought {
        let station = Arc::clone(&self.station);
        let claimed = match answer {
            Ok(claimed) => claimed,
            Err(error) => {
                station.desk.unplace(&ask);
                self.failed(&ask, &error);
                return Brought::Error;
            }
        };
        station.store_answered();
        self.outage.reset();
        station.stats.on_claim(claimed.units.len());
        let tenants = claimed.units.iter().map(|held| &held.unit.tenant);
        station.waits.claimed(tenants, Instant::now());
        let brought = judge(&ask, &claimed);
        if !claimed.units.is_empty() {
            self.idle.reset();
            self.fruitless = 0;
        }
        station.desk.place(ask, claimed);
        brought
    }

    fn failed(&self, ask: &Ask, error: &Error) {
        match error {
            Error::SessionGone(_) => self.station.session_gone(ask.session),
            error if error.is_retryable() => self.station.store_failed(error),
            error => tracing::error!(%error, "the store refuses to hand out units"),
        }
    }

    /// How long to go without news.
    fn patience(&mut self) -> Duration {
        if self.station.settings.until_idle { jitter(POLL.0) } else { self.idle.next_wait() }
    }

    async fn wait_for_more(&mut self, or_slots: bool) {
        let station = Arc::clone(&self.station);
        if station.settings.until_idle && self.is_idle().await {
            tracing::info!("nothing is left to do");
            return station.control.drain();
        }
        self.fruitless += 1;
        if self.fruitless > 4 {
            tokio::time::sleep(FRUITLESS_GAP).await;
        }
        let patience = self.patience();
        let patience = station.waits.known_in().map_or(patience, |soon| soon.min(patience));
        tokio::select! {
            seen = station.store().wake(self.seen, patience) => self.seen = seen,
            () = station.desk.lightened.notified(), if or_slots => {}
            () = station.waits.eased.notified() => {}
            () = station.control.left(Order::Work) => {}
        }
        self.pace.rested(station.stats.ran(), Instant::now());
    }

    /// Whether nobody has anything to do, us included.
    async fn is_idle(&self) -> bool {
        let station = &self.station;
        let idle = |counts: &Counts| counts.ready + counts.leased + counts.scheduled == 0;
        if !station.desk.is_clear() {
            return false;
        }
        let settings = &station.settings;
        let answer =
            match &settings.batch {
                Some(batch) => station.store().batch(&settings.scope, batch).await.map(|batch| {
                    idle(&batch.counts) && (batch.sealed || batch.status.is_given_up())
                }),
                None => {
                    let totals = station.store().totals(&settings.scope, &settings.queues).await;
                    totals.map(|totals| idle(&totals.counts) && totals.open_batches == 0)
                }
            };
        answer.unwrap_or(false)
    }
}

/// Whether a claim brought what would fit. For a unit that wants to be alone the desk makes room.
fn judge(ask: &Ask, claimed: &Claimed) -> Brought {
    let started = claimed.units.iter().filter(|held| held.started);
    let slots: u32 = started.map(|held| held.unit.weight.slots).sum();
    let filled = if ask.free > 0 { slots >= ask.free } else { !claimed.units.is_empty() };
    let makes_room = claimed.alone_waiting && !ask.empty_handed;
    if filled || makes_room {
        return Brought::Enough;
    }
    if claimed.heavy_waiting || ask.free == 0 { Brought::NotYet } else { Brought::Little }
}
