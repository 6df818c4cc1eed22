//! What was a while ago: a ring of samples of every lane, kept by the process that serves.
//!
//! Stores keep how things stand, not how they stood: a history in the store would be a write for
//! every look. So the charts begin with the process, and say so. What is kept is bounded: so many
//! samples of so many lanes and tenants; of more lanes than that only the sums are known.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use longshore::store::{QueueInfo, UnitFilter};
use longshore::{Counts, QueueName, Result, Scope, Store, TenantId, Timestamp, Unit, UnitState};

use crate::Trend;

/// Between two samples.
pub(crate) const EVERY: Duration = Duration::from_secs(10);
/// Samples that are kept: an hour.
const KEPT: usize = 360;
/// Series that are kept, of lanes and tenants together.
const SERIES: usize = 1_000;
/// Units that ended last, from which it is seen how long they take.
const ENDED: u32 = 100;
/// Samples by which a backlog is judged: two minutes.
const JUDGED: usize = 12;

/// What was a while ago.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<BTreeMap<Of, VecDeque<Sample>>>);

/// Whose figures.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    All,
    Tenant(TenantId),
    Lane(QueueName, TenantId),
}

/// Figures of one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) at: Timestamp,
    /// Units that could run or do.
    pub(crate) backlog: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    /// From its sending to its end: the median of the units that ended since the sample before.
    pub(crate) took: Option<Duration>,
    /// The same for all but the slowest twentieth.
    pub(crate) took_most: Option<Duration>,
}

/// Judges backlogs, oldest first. `None` if there is too little to judge by.
pub(crate) fn trend(backlogs: &[u64]) -> Option<Trend> {
    let judged = Trend::of(*backlogs.first()?, *backlogs.last()?);
    (backlogs.len() >= 3 || judged == Trend::Idle).then_some(judged)
}

impl History {
    /// Looks at everything once.
    pub(crate) async fn sample(&self, store: &dyn Store, now: Timestamp) -> Result<()> {
        let lanes = store.queues(&Scope::All).await?;
        let ended = UnitFilter { state: Some(UnitState::Done), ..UnitFilter::default() };
        let ended = store.units(&Scope::All, &ended, None, ENDED).await?.items;
        self.keep(now, &lanes, &ended);
        Ok(())
    }

    fn keep(&self, now: Timestamp, lanes: &[QueueInfo], ended: &[Unit]) {
        let mut seen: BTreeMap<Of, Sample> = BTreeMap::new();
        for lane in lanes {
            let tenant = lane.tenant.clone();
            let keys = [Of::All, Of::Tenant(tenant.clone()), Of::Lane(lane.queue.clone(), tenant)];
            for key in keys {
                let sample = seen.entry(key).or_insert(Sample { at: now, ..Sample::default() });
                sample.count(&lane.counts);
            }
        }
        seen.entry(Of::All).or_insert(Sample { at: now, ..Sample::default() });
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = kept.get(&Of::All).and_then(|all| all.back()).map(|last| last.at);
        for (of, sample) in &mut seen {
            let own = ended.iter().filter(|unit| since.is_some_and(|since| unit.since > since));
            let times =
                own.filter(|unit| of.covers(unit)).map(|unit| unit.since.since(unit.created_at));
            (sample.took, sample.took_most) = quantiles(times.collect());
        }
        // What is gone is forgotten, so that there is room for what comes.
        kept.retain(|of, _| seen.contains_key(of));
        for (of, sample) in seen {
            if kept.len() >= SERIES && !kept.contains_key(&of) {
                continue;
            }
            let series = kept.entry(of).or_default();
            series.push_back(sample);
            if series.len() > KEPT {
                series.pop_front();
            }
        }
    }

    /// The samples of what somebody sees, oldest first.
    pub(crate) fn of(&self, scope: &Scope) -> Vec<Sample> {
        self.series(&match scope {
            Scope::All => Of::All,
            Scope::Tenant(tenant) => Of::Tenant(tenant.clone()),
        })
    }

    /// How a lane gets on.
    pub(crate) fn trend(&self, queue: &QueueName, tenant: &TenantId) -> Option<Trend> {
        let series = self.series(&Of::Lane(queue.clone(), tenant.clone()));
        let last = &series[series.len().saturating_sub(JUDGED)..];
        trend(&last.iter().map(|sample| sample.backlog).collect::<Vec<_>>())
    }

    fn series(&self, of: &Of) -> Vec<Sample> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(of).map(|series| series.iter().copied().collect()).unwrap_or_default()
    }
}

impl Of {
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

    /// Units done per second since the sample before; `None` if fewer are kept than were: old ones
    /// have been pruned meanwhile.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub(crate) fn rate(&self, before: &Self) -> Option<f64> {
        let seconds = self.at.since(before.at).as_secs_f64();
        let done = self.done.checked_sub(before.done)?;
        (seconds > 0.0).then(|| done as f64 / seconds)
    }
}

/// The median, and what nineteen of twenty are below.
fn quantiles(mut times: Vec<Duration>) -> (Option<Duration>, Option<Duration>) {
    times.sort_unstable();
    let at =
        |part: usize| times.get((times.len() * part / 20).min(times.len().max(1) - 1)).copied();
    (at(10), at(19))
}

#[cfg(test)]
mod tests {
    use longshore::{Kind, MemoryStore, NewUnit};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_backlog_grows_drains_or_does_neither() {
        for (backlogs, judged) in [
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
            assert_eq!(trend(&backlogs), judged, "{backlogs:?}");
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
        use longshore::store::Intake;
        store.send(&Scope::All, vec![unit("a"), unit("a"), unit("b")]).await.unwrap();
        let history = History::default();
        for second in 0..KEPT + 5 {
            let now = Timestamp::ZERO + EVERY * u32::try_from(second).unwrap();
            history.sample(&store, now).await.unwrap();
        }
        let own = history.of(&Scope::Tenant(TenantId::new("b").unwrap()));
        assert_eq!((own.len(), own[0].backlog), (KEPT, 1));
        assert_eq!(history.of(&Scope::All)[0].backlog, 3);
        assert!(history.of(&Scope::Tenant(TenantId::new("c").unwrap())).is_empty());
        let queue = QueueName::new("default").unwrap();
        assert_eq!(history.trend(&queue, &TenantId::new("a").unwrap()), Some(Trend::Steady));
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
