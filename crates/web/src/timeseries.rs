//! Ring buffers of samples per lane and tenant, kept by the serving process.
//!
//! Stores keep current counts only; a history in the store would cost a write per sample. So charts begin
//! with the process, and say so. Memory is bounded by the number of samples and series; beyond that only the
//! totals are kept.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use longshore::store::{QueueInfo, UnitFilter};
use longshore::{Counts, QueueName, Result, Scope, Store, TenantId, Timestamp, Unit, UnitState};

use crate::Trend;

/// Interval between samples.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// Samples per series: one hour.
const MAX_SAMPLES: usize = 360;
/// Maximum number of series, of lanes and tenants together.
const MAX_SERIES: usize = 1_000;
/// Number of recently completed units that latencies are computed from.
const LATENCY_UNITS: u32 = 100;
/// Samples that a trend is computed from: two minutes.
const TREND_SAMPLES: usize = 12;

/// Samples by lane, tenant and in total.
#[derive(Debug, Default)]
pub(crate) struct TimeSeries(Mutex<BTreeMap<SeriesKey, VecDeque<Sample>>>);

/// The key of a series.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum SeriesKey {
    All,
    Tenant(TenantId),
    Lane(QueueName, TenantId),
}

/// The figures of one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) at: Timestamp,
    /// Ready and running units.
    pub(crate) backlog: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    /// Median time from enqueue to completion of the units that completed since the previous sample.
    pub(crate) latency_p50: Option<Duration>,
    /// The 95th percentile of that time.
    pub(crate) latency_p95: Option<Duration>,
}

/// The trend of backlogs, oldest first. `None` if there are too few.
pub(crate) fn trend(backlogs: &[u64]) -> Option<Trend> {
    let trend = Trend::of(*backlogs.first()?, *backlogs.last()?);
    (backlogs.len() >= 3 || trend == Trend::Idle).then_some(trend)
}

impl TimeSeries {
    /// Takes a sample of all lanes.
    pub(crate) async fn sample(&self, store: &dyn Store, now: Timestamp) -> Result<()> {
        let lanes = store.queues(&Scope::All).await?;
        let completed = UnitFilter { state: Some(UnitState::Done), ..UnitFilter::default() };
        let completed = store.units(&Scope::All, &completed, None, LATENCY_UNITS).await?.items;
        self.record(now, &lanes, &completed);
        Ok(())
    }

    fn record(&self, now: Timestamp, lanes: &[QueueInfo], completed: &[Unit]) {
        let mut samples: BTreeMap<SeriesKey, Sample> = BTreeMap::new();
        for lane in lanes {
            let tenant = lane.tenant.clone();
            let keys = [
                SeriesKey::All,
                SeriesKey::Tenant(tenant.clone()),
                SeriesKey::Lane(lane.queue.clone(), tenant),
            ];
            for key in keys {
                let sample = samples.entry(key).or_insert(Sample { at: now, ..Sample::default() });
                sample.count(&lane.counts);
            }
        }
        samples.entry(SeriesKey::All).or_insert(Sample { at: now, ..Sample::default() });
        let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = stored.get(&SeriesKey::All).and_then(|all| all.back()).map(|last| last.at);
        for (of, sample) in &mut samples {
            let own = completed.iter().filter(|unit| since.is_some_and(|since| unit.since > since));
            let times = own.filter(|unit| of.covers(unit)).map(|unit| unit.since.since(unit.created_at));
            (sample.latency_p50, sample.latency_p95) = quantiles(times.collect());
        }
        // Drop series of removed lanes, to make room for new ones.
        stored.retain(|of, _| samples.contains_key(of));
        for (of, sample) in samples {
            if stored.len() >= MAX_SERIES && !stored.contains_key(&of) {
                continue;
            }
            let series = stored.entry(of).or_default();
            series.push_back(sample);
            if series.len() > MAX_SAMPLES {
                series.pop_front();
            }
        }
    }

    /// The samples of a scope, oldest first.
    pub(crate) fn of(&self, scope: &Scope) -> Vec<Sample> {
        self.series(&match scope {
            Scope::All => SeriesKey::All,
            Scope::Tenant(tenant) => SeriesKey::Tenant(tenant.clone()),
        })
    }

    /// The trend of a lane.
    pub(crate) fn trend(&self, queue: &QueueName, tenant: &TenantId) -> Option<Trend> {
        let series = self.series(&SeriesKey::Lane(queue.clone(), tenant.clone()));
        let last = &series[series.len().saturating_sub(TREND_SAMPLES)..];
        trend(&last.iter().map(|sample| sample.backlog).collect::<Vec<_>>())
    }

    fn series(&self, of: &SeriesKey) -> Vec<Sample> {
        let stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stored.get(of).map(|series| series.iter().copied().collect()).unwrap_or_default()
    }
}

impl SeriesKey {
    fn covers(&self, unit: &Unit) -> bool {
        match self {
            Self::All => true,
            Self::Tenant(tenant) => unit.tenant == *tenant,
            Self::Lane(queue, tenant) => unit.queue == *queue && unit.tenant == *tenant,
        }
    }
}

impl Sample {
    fn count(&mut self, counts: &Counts) {
        self.backlog += counts.ready + counts.leased;
        self.done += counts.done;
        self.failed += counts.failed;
    }

    /// Units completed per second since the previous sample. `None` if the count decreased, because units
    /// were pruned.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub(crate) fn rate(&self, before: &Self) -> Option<f64> {
        let seconds = self.at.since(before.at).as_secs_f64();
        let done = self.done.checked_sub(before.done)?;
        (seconds > 0.0).then(|| done as f64 / seconds)
    }
}

/// The median and the 95th percentile.
fn quantiles(mut times: Vec<Duration>) -> (Option<Duration>, Option<Duration>) {
    times.sort_unstable();
    let at = |part: usize| times.get((times.len() * part / 20).min(times.len().max(1) - 1)).copied();
    (at(10), at(19))
}

#[cfg(test)]
mod tests {
    use longshore::{Kind, MemoryStore, NewUnit};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_backlog_grows_drains_or_does_neither() {
        for (backlogs, expected) in [
            (vec![], None),
            (vec![0], Some(Trend::Idle)),
            (vec![5, 0, 7], Some(Trend::Steady)),
            (vec![5, 9], None),
            (vec![0, 3, 9], Some(Trend::Growing)),
            (vec![1000, 900, 1090], Some(Trend::Steady)),
            (vec![1000, 900, 1200], Some(Trend::Growing)),
            (vec![1000, 900, 800], Some(Trend::Draining)),
            (vec![0, 9, 0], Some(Trend::Idle)),
            (vec![900, 1, 0], Some(Trend::Idle)),
            (vec![u64::MAX, u64::MAX, u64::MAX], Some(Trend::Steady)),
        ] {
            assert_eq!(trend(&backlogs), expected, "{backlogs:?}");
        }
    }

    #[test]
    fn quantiles_of_few_are_among_them() {
        let of = |times: &[u64]| quantiles(times.iter().map(|s| Duration::from_secs(*s)).collect());
        assert_eq!(of(&[]), (None, None));
        assert_eq!(of(&[3]), (Some(Duration::from_secs(3)), Some(Duration::from_secs(3))));
        let many: Vec<u64> = (0..100).rev().collect();
        assert_eq!(of(&many), (Some(Duration::from_secs(50)), Some(Duration::from_secs(95))));
    }

    #[tokio::test]
    async fn a_tenant_sees_the_history_of_its_own_lanes_only_and_the_ring_has_an_end() {
        let store = MemoryStore::default();
        let unit = |tenant: &str| NewUnit {
            tenant: TenantId::new(tenant).unwrap(),
            ..NewUnit::new(Kind::new("k").unwrap(), json!(1))
        };
        use longshore::store::Enqueue;
        store.send(&Scope::All, vec![unit("a"), unit("a"), unit("b")]).await.unwrap();
        let timeseries = TimeSeries::default();
        for second in 0..MAX_SAMPLES + 5 {
            let now = Timestamp::ZERO + SAMPLE_INTERVAL * u32::try_from(second).unwrap();
            timeseries.sample(&store, now).await.unwrap();
        }
        let own = timeseries.of(&Scope::Tenant(TenantId::new("b").unwrap()));
        assert_eq!((own.len(), own[0].backlog), (MAX_SAMPLES, 1));
        assert_eq!(timeseries.of(&Scope::All)[0].backlog, 3);
        assert!(timeseries.of(&Scope::Tenant(TenantId::new("c").unwrap())).is_empty());
        let queue = QueueName::new("default").unwrap();
        assert_eq!(timeseries.trend(&queue, &TenantId::new("a").unwrap()), Some(Trend::Steady));
    }

    #[test]
    fn a_rate_is_not_guessed_from_what_was_pruned() {
        let at = |second: u64, done| Sample {
            at: Timestamp::ZERO + Duration::from_secs(second),
            done,
            ..Sample::default()
        };
        assert_eq!(at(10, 50).rate(&at(0, 30)), Some(2.0));
        assert_eq!(at(10, 5).rate(&at(0, 30)), None);
        assert_eq!(at(0, 50).rate(&at(0, 30)), None);
    }
}
