//! The server's clock, by which all processes send, expire and prune.
//!
//! It is measured when a store opens and every [`SYNC_INTERVAL`], and advanced by the clock since boot in
//! between, which also counts the time that the machine is suspended. So a statement carries its time without another round trip, and this machine's wall clock, which may be
//! wrong or jump, decides nothing. Promoting and pruning read the server's clock itself.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use longshore_core::{Clock, Error, Result, Timestamp, duration};
use rustix::time::{ClockId, clock_gettime};
use tokio_postgres::Client;

use crate::connect::{self, ClockSource, PostgresOptions};
use crate::error::Translate;
use crate::single_statement::ConnGuard;
use crate::store::StoreInner;

/// From this skew on, the log and `doctor` warn: times that this machine's programs compute, as deadlines, are wrong by
/// as much.
pub const CLOCK_SKEW_WARNING: Duration = Duration::from_secs(1);

/// How often the server's clock is measured.
const SYNC_INTERVAL: Duration = Duration::from_secs(30);

/// A measurement with a shorter round trip needs no second one.
const GOOD_ROUND_TRIP: Duration = Duration::from_millis(20);

/// How many times a slow measurement is repeated. The one with the shortest round trip counts.
const MAX_SAMPLES: u32 = 3;

/// Reads the server's clock, in microseconds.
pub(crate) const CLOCK_SQL: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// The difference between this machine's clock and the server's that a round trip does not explain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSkew {
    /// How far the clocks are apart.
    pub apart: Duration,
    /// Whether this machine's clock is the later one.
    pub ahead: bool,
}

impl ClockSkew {
    /// The skew if the server read `server` between this machine's `before` and `after`.
    fn between(before: Timestamp, server: Timestamp, after: Timestamp) -> Self {
        let ahead = before > server;
        Self { apart: if ahead { before.since(server) } else { server.since(after) }, ahead }
    }
}

impl fmt::Display for ClockSkew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.ahead { "ahead of" } else { "behind" };
        write!(f, "this machine's clock is {} {direction} PostgreSQL's", duration::format(self.apart))
    }
}

/// Measures the skew of `clock` on a connection of its own.
pub async fn clock_skew(url: &str, clock: &dyn Clock) -> Result<ClockSkew> {
    let (client, connection) = connect::connect(&connect::address(url)?).await?;
    tokio::select! {
        sample = Sample::take(&client, clock) => Ok(sample?.skew()),
        _ = connection => Err(Error::unavailable("the connection to PostgreSQL was lost")),
    }
}

/// The time since boot. Unlike `Instant`, it includes the time that the machine was suspended.
fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_nanos(time.tv_nsec.unsigned_abs())
}

/// One reading of the server's clock.
struct Sample {
    before: Timestamp,
    /// The time since boot when it was requested.
    sent: Duration,
    server: Timestamp,
    round_trip: Duration,
}

impl Sample {
    /// Reads the server's clock: the reading with the shortest of a few round trips.
    async fn take(client: &Client, clock: &dyn Clock) -> Result<Self> {
        let mut best = Self::take_once(client, clock).await?;
        for _ in 1..MAX_SAMPLES {
            if best.round_trip <= GOOD_ROUND_TRIP {
                break;
            }
            let next = Self::take_once(client, clock).await?;
            if next.round_trip < best.round_trip {
                best = next;
            }
        }
        Ok(best)
    }

    async fn take_once(client: &Client, clock: &dyn Clock) -> Result<Self> {
        let (before, sent) = (clock.now(), since_boot());
        let rows = client.query_typed(CLOCK_SQL, &[]).await.or_translate()?;
        let micros = rows.first().ok_or_else(|| crate::error::damaged("no row where one is required"))?;
        let server = Timestamp::from_micros(micros.try_get(0).or_translate()?);
        Ok(Self { before, sent, server, round_trip: since_boot().saturating_sub(sent) })
    }

    fn skew(&self) -> ClockSkew {
        ClockSkew::between(self.before, self.server, self.before + self.round_trip)
    }
}

/// The server's clock as this process knows it.
pub(crate) struct ServerClock {
    pub(crate) source: ClockSource,
    local: Arc<dyn Clock>,
    /// The server's time at this machine's boot, in microseconds.
    server_at_boot: AtomicI64,
    /// Whether the current skew was reported.
    warned: AtomicBool,
}

impl ServerClock {
    /// A clock that must be measured before its first use.
    pub(crate) fn new(options: &PostgresOptions) -> Self {
        Self {
            source: options.clock_source,
            local: Arc::clone(&options.clock),
            server_at_boot: AtomicI64::new(0),
            warned: AtomicBool::new(false),
        }
    }

    /// The current time.
    pub(crate) fn now(&self) -> Timestamp {
        match self.source {
            ClockSource::Local => self.local.now(),
            ClockSource::Server => {
                Timestamp::from_micros(self.server_at_boot.load(Ordering::Relaxed)) + since_boot()
            }
        }
    }

    fn record(&self, sample: &Sample) {
        let at_boot = sample.server - (sample.sent + sample.round_trip / 2);
        self.server_at_boot.store(at_boot.as_micros(), Ordering::Relaxed);
    }

    /// Logs a skew once, until it is gone.
    fn warn(&self, skew: ClockSkew) {
        let large = skew.apart >= CLOCK_SKEW_WARNING;
        if self.warned.swap(large, Ordering::Relaxed) != large && large {
            tracing::warn!(
                "{skew}; the store uses the server's clock, but deadlines and delays that programs here compute are \
                 wrong by as much: synchronise both machines with a time server"
            );
        }
    }
}

impl StoreInner {
    /// The current time, by the server's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Measures the server's clock. Refuses a skew beyond the limit.
    pub(crate) async fn check_clock(&self) -> Result<()> {
        let (skew, limit) = (self.sync_clock().await?, self.options.max_clock_skew);
        if skew.apart <= limit {
            self.clock.warn(skew);
            return Ok(());
        }
        let limit = duration::format(limit);
        Err(Error::ClockSkew(format!("{skew}; the most is {limit} (max_clock_skew)")))
    }

    /// Measures the server's clock again and again.
    pub(crate) async fn keep_clock(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SYNC_INTERVAL).await;
            // While the server is unavailable, the clock since boot is good enough.
            match self.sync_clock().await {
                Ok(skew) => self.clock.warn(skew),
                Err(error) => tracing::debug!(%error, "cannot read PostgreSQL's clock"),
            }
        }
    }

    async fn sync_clock(&self) -> Result<ClockSkew> {
        if self.clock.source == ClockSource::Local {
            return Ok(ClockSkew { apart: Duration::ZERO, ahead: false });
        }
        let sample = self.with_timeout(async {
            let guard = ConnGuard::acquire(&self.pool).await?;
            let sample = Sample::take(guard.client()?, &*self.clock.local).await;
            guard.release();
            sample
        });
        let sample = sample.await?;
        self.clock.record(&sample);
        Ok(sample.skew())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn the_skew_is_what_the_round_trip_cannot_explain() {
        let skew = |apart, ahead| ClockSkew { apart: Duration::from_micros(apart), ahead };
        assert_eq!(ClockSkew::between(at(10), at(15), at(20)), skew(0, false));
        assert_eq!(ClockSkew::between(at(10), at(7), at(20)), skew(3, true));
        assert_eq!(ClockSkew::between(at(10), at(26), at(20)), skew(6, false));
    }

    #[test]
    fn the_time_is_the_servers_whatever_this_machines_clock_shows() {
        let clock = ServerClock::new(&PostgresOptions::default());
        let server = at(1_000_000_000_000);
        let sent = since_boot();
        clock.record(&Sample { before: at(0), sent, server, round_trip: Duration::from_millis(2) });
        let now = clock.now();
        let (earliest, latest) =
            (server - Duration::from_millis(1), server + since_boot().saturating_sub(sent));
        assert!(earliest <= now && now <= latest, "{now}");
    }

    #[test]
    fn a_skew_is_reported_once_until_it_is_gone() {
        let clock = ServerClock::new(&PostgresOptions::default());
        let skew = |seconds| ClockSkew { apart: Duration::from_secs(seconds), ahead: true };
        let reported = |seconds| {
            let before = clock.warned.load(Ordering::Relaxed);
            clock.warn(skew(seconds));
            !before && clock.warned.load(Ordering::Relaxed)
        };
        assert_eq!([0, 1, 60, 0, 1].map(reported), [false, true, false, false, true]);
    }
}
