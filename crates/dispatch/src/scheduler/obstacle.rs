//! Why a worker is not given a task: the one definition of whether a task fits a worker.

use std::fmt;
use std::time::Duration;

use longshore::{HumanDuration, ResourceAmount, byte_size, duration};
use serde::{Deserialize, Serialize};

use super::resource_request::ResourceRequest;
use super::worker_entry::{WorkerEntry, WorkerState};

/// The resource that scripts request as memory, in MiB.
pub const MEMORY: &str = "mem";
/// The resource that scripts request as GPUs.
pub const GPU: &str = "gpu";

/// A reason why a worker is not given a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "obstacle", rename_all = "snake_case")]
pub enum Obstacle {
    /// The worker is shutting down and accepts no more tasks.
    Draining,
    /// The worker's connection broke.
    Disconnected,
    /// Too few threads.
    Threads {
        /// Threads that the task needs.
        needs: u32,
        /// Threads of the worker.
        has: u32,
        /// Threads that no other task occupies.
        free: u32,
    },
    /// Too little of a named resource.
    Resource {
        /// The resource; `mem` is memory in MiB.
        name: String,
        /// Amount that the task needs.
        needs: ResourceAmount,
        /// Amount of the worker.
        has: ResourceAmount,
        /// Amount that the task could get now.
        free: ResourceAmount,
    },
    /// The worker interrupts its tasks before the task's time limit would be over.
    TimeLeft {
        /// The task's time limit.
        needs: HumanDuration,
        /// Time until the worker interrupts its tasks.
        left: HumanDuration,
    },
    /// The task runs alone, because workers died each time it ran, and the worker has others.
    MustRunAlone,
    /// The worker runs a task that must run alone.
    Occupied,
    /// The worker is reserved for a task that has waited longer and fits nowhere else.
    Reserved,
}

impl Obstacle {
    /// Whether the obstacle stays, whatever other tasks end.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Draining | Self::TimeLeft { .. } => true,
            Self::Threads { needs, has, .. } => needs > has,
            Self::Resource { needs, has, .. } => needs > has,
            Self::Disconnected | Self::MustRunAlone | Self::Occupied | Self::Reserved => false,
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |HumanDuration(time): &HumanDuration| duration::format(*time);
        match self {
            Self::Draining => f.write_str("it is draining"),
            Self::Disconnected => f.write_str("it is disconnected"),
            Self::Threads { needs, has, .. } if needs > has => {
                write!(f, "threads: {needs} needed, it has {has}")
            }
            Self::Threads { needs, has, free } => {
                write!(f, "threads: {needs} needed, {free} of {has} are free")
            }
            Self::Resource { name, needs, has, .. } if needs > has => {
                write!(f, "{}: {} needed, it has {}", label(name), amount(name, *needs), amount(name, *has))
            }
            Self::Resource { name, needs, has, free } => {
                let [needs, has, free] = [needs, has, free].map(|number| amount(name, *number));
                write!(f, "{}: {needs} needed, {free} of {has} are free", label(name))
            }
            Self::TimeLeft { needs, left } => {
                write!(f, "time left: {} needed, it interrupts scripts in {}", time(needs), time(left))
            }
            Self::MustRunAlone => {
                f.write_str("the script runs alone, because workers died with it, and it has others")
            }
            Self::Occupied => f.write_str("it runs a script that must run alone"),
            Self::Reserved => f.write_str("it is reserved for a script that has waited longer"),
        }
    }
}

/// The name of a resource, for people.
pub fn label(resource: &str) -> &str {
    if resource == MEMORY { "memory" } else { resource }
}

/// An amount of a resource, for people.
pub fn amount(resource: &str, number: ResourceAmount) -> String {
    match number.as_whole() {
        Some(mebibytes) if resource == MEMORY => byte_size::format(u64::from(mebibytes) << 20),
        _ => number.to_string(),
    }
}

impl WorkerEntry {
    /// Everything that keeps a task with this request from the worker now. Without obstacle, it fits.
    pub fn obstacles<'a>(
        &'a self,
        now: Duration,
        request: &'a ResourceRequest,
    ) -> impl Iterator<Item = Obstacle> + 'a {
        let state = match self.state {
            WorkerState::Working => None,
            WorkerState::Draining => Some(Obstacle::Draining),
            WorkerState::Disconnected(_) => Some(Obstacle::Disconnected),
        };
        let occupied = self.is_exclusive().then_some(Obstacle::Occupied);
        let (needs, has, free) = (request.threads, self.threads, self.free_threads());
        // A worker with an exclusive task has free threads that are not given out.
        let lacks_threads = needs > has || (occupied.is_none() && needs > free);
        let threads = lacks_threads.then_some(Obstacle::Threads { needs, has, free });
        let resources = request.resources.iter().filter_map(|(name, needs)| {
            let has = ResourceAmount::whole(self.resources.get(name).copied().unwrap_or(0));
            let free = self.available(name, *needs);
            (*needs > free).then(|| Obstacle::Resource { name: name.clone(), needs: *needs, has, free })
        });
        let left = self.interrupts_at.map(|at| at.saturating_sub(now));
        let time = request.time.zip(left).filter(|(needs, left)| needs > left);
        let time = time.map(|(needs, left)| Obstacle::TimeLeft {
            needs: HumanDuration(needs),
            left: HumanDuration(left),
        });
        let alone = (request.exclusive && self.task_count() > 0).then_some(Obstacle::MustRunAlone);
        let first = [state, threads].into_iter().flatten();
        first.chain(resources).chain([time, alone, occupied].into_iter().flatten())
    }

    /// Whether the task can run here now.
    pub(super) fn fits(&self, now: Duration, request: &ResourceRequest) -> bool {
        self.obstacles(now, request).next().is_none()
    }

    /// Whether the task could run here once others have ended.
    pub fn could_fit(&self, now: Duration, request: &ResourceRequest) -> bool {
        !self.obstacles(now, request).any(|obstacle| obstacle.is_permanent())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use longshore::UnitId;

    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn worker() -> WorkerEntry {
        let resources = BTreeMap::from([("gpu".to_owned(), 2), (MEMORY.to_owned(), 1000)]);
        WorkerEntry::new("w", 4, resources)
    }

    fn request(threads: u32, resources: &[(&str, u32)]) -> ResourceRequest {
        let resources = resources.iter();
        let resources = resources.map(|(name, amount)| ((*name).to_owned(), ResourceAmount::whole(*amount)));
        let resources = resources.collect();
        ResourceRequest { resources, ..ResourceRequest::threads(threads) }
    }

    fn reasons(worker: &WorkerEntry, request: &ResourceRequest) -> Vec<String> {
        worker.obstacles(NOW, request).map(|obstacle| obstacle.to_string()).collect()
    }

    #[test]
    fn every_obstacle_is_named_with_what_is_needed_and_what_there_is() {
        let mut worker = worker();
        assert_eq!(reasons(&worker, &request(4, &[("gpu", 2)])), [""; 0]);
        let wide = request(5, &[("gpu", 3), (MEMORY, 2000), ("tape", 1)]);
        assert_eq!(
            reasons(&worker, &wide),
            [
                "threads: 5 needed, it has 4",
                "gpu: 3 needed, it has 2",
                "memory: 2.1 GB needed, it has 1 GB",
                "tape: 1 needed, it has 0",
            ]
        );
        assert!(!worker.could_fit(NOW, &wide));

        worker.assign(UnitId::new(), &request(3, &[("gpu", 1)]));
        let wants = request(2, &[("gpu", 2)]);
        let busy = ["threads: 2 needed, 1 of 4 are free", "gpu: 2 needed, 1 of 2 are free"];
        assert_eq!(reasons(&worker, &wants), busy);
        assert!(!worker.fits(NOW, &wants) && worker.could_fit(NOW, &wants), "it waits for others");

        let alone = ResourceRequest { exclusive: true, ..ResourceRequest::threads(1) };
        assert_eq!(worker.obstacles(NOW, &alone).collect::<Vec<_>>(), [Obstacle::MustRunAlone]);
        let mut occupied = self::worker();
        occupied.assign(UnitId::new(), &alone);
        let one = ResourceRequest::threads(1);
        assert_eq!(occupied.obstacles(NOW, &one).collect::<Vec<_>>(), [Obstacle::Occupied]);
    }

    #[test]
    fn a_worker_that_leaves_takes_nothing_that_is_longer_than_its_life() {
        let mut worker = worker();
        let hour = Duration::from_secs(3600);
        let long = ResourceRequest { time: Some(hour), ..ResourceRequest::threads(1) };
        assert!(worker.fits(NOW, &long), "it has no end");
        worker.interrupts_at = Some(NOW + hour);
        assert!(worker.fits(NOW, &long), "just enough");
        let later = NOW + Duration::from_secs(600);
        let found: Vec<String> = worker.obstacles(later, &long).map(|it| it.to_string()).collect();
        assert_eq!(found, ["time left: 1 h needed, it interrupts scripts in 50 min"]);
        assert!(!worker.could_fit(later, &long));
        assert!(worker.fits(later, &ResourceRequest::threads(1)), "without --time as before");

        worker.state = WorkerState::Draining;
        assert_eq!(reasons(&worker, &ResourceRequest::threads(1)), ["it is draining"]);
        worker.state = WorkerState::Disconnected(NOW);
        assert_eq!(reasons(&worker, &ResourceRequest::threads(1)), ["it is disconnected"]);
        assert!(worker.could_fit(NOW, &ResourceRequest::threads(1)), "it may come back");
    }
}
