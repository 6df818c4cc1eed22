//! Divides the scripts of a pool among its allocations. No I/O.

use longshore::ResourceAmount;
use std::time::Duration;

use crate::scheduler::{ResourcePool, ResourceRequest, WorkerEntry};

/// Scripts with the same request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// What each of them needs.
    pub request: ResourceRequest,
    /// How many wait or run.
    pub scripts: u64,
}

/// What an allocation can offer.
#[derive(Debug)]
pub(super) struct Supply {
    /// A worker at the start of its life.
    pub(super) worker: WorkerEntry,
    /// Workers that are there or on their way.
    pub(super) present: u32,
    /// Maximum number of workers.
    pub(super) max: u32,
}

impl Supply {
    /// How many scripts with this request a worker runs at once; `None` if it can run none.
    fn scripts_per_worker(&self, request: &ResourceRequest) -> Option<f64> {
        if !self.worker.could_fit(Duration::ZERO, request) {
            return None;
        }
        if request.exclusive {
            return Some(1.0);
        }
        let of_resource = |(name, needs): (&String, &ResourceAmount)| {
            let mut pool = ResourcePool::new(name, self.worker.resources.get(name).copied().unwrap_or(0));
            let mut scripts = 0;
            while scripts < self.worker.threads && pool.suffices(*needs) {
                pool.take(*needs);
                scripts += 1;
            }
            scripts
        };
        let by_resources = request.resources.iter().map(of_resource);
        let by_threads = self.worker.threads / request.threads.max(1);
        by_resources.chain([by_threads]).min().map(|scripts| f64::from(scripts.max(1)))
    }
}

/// How many workers of each allocation the scripts need. Workers that are there go before new ones, and earlier
/// allocations before later ones. Scripts that few allocations can run choose first.
pub(super) fn divide(demand: &[Demand], supplies: &[Supply]) -> Vec<u32> {
    let mut used = vec![0.0; supplies.len()];
    let mut left: Vec<(f64, Vec<Option<f64>>)> = demand
        .iter()
        .map(|Demand { request, scripts }| {
            let per_worker = supplies.iter().map(|supply| supply.scripts_per_worker(request)).collect();
            #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 scripts")]
            let scripts = *scripts as f64;
            (scripts, per_worker)
        })
        .collect();
    left.sort_by_key(|(_, per_worker)| per_worker.iter().flatten().count());
    let limits: [fn(&Supply) -> u32; 2] = [|supply| supply.present.min(supply.max), |supply| supply.max];
    for limit in limits {
        for (scripts, per_worker) in &mut left {
            for ((supply, used), per_worker) in supplies.iter().zip(&mut used).zip(per_worker) {
                let Some(per_worker) = *per_worker else { continue };
                let room = (f64::from(limit(supply)) - *used).max(0.0);
                let workers = (*scripts / per_worker).min(room);
                *used += workers;
                *scripts -= workers * per_worker;
            }
        }
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and a u32")]
    used.into_iter().map(|workers| (workers - 1e-6).ceil().max(0.0) as u32).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn supply(threads: u32, gpus: u32, present: u32, max: u32) -> Supply {
        let resources = [("gpu".to_owned(), gpus)].into_iter().filter(|(_, gpus)| *gpus > 0).collect();
        Supply { worker: WorkerEntry::new("", threads, resources), present, max }
    }

    fn scripts(scripts: u64, threads: u32, gpus: u32) -> Demand {
        let gpus = ResourceAmount::whole(gpus);
        let resources: BTreeMap<String, ResourceAmount> = [("gpu".to_owned(), gpus)]
            .into_iter()
            .filter(|(_, gpus)| *gpus > ResourceAmount::default())
            .collect();
        Demand { request: ResourceRequest { resources, ..ResourceRequest::threads(threads) }, scripts }
    }

    #[test]
    fn what_few_can_run_goes_to_those_and_the_rest_in_order() {
        let supplies = [supply(4, 0, 0, 2), supply(8, 2, 0, 10)];
        assert_eq!(divide(&[scripts(8, 1, 0)], &supplies), [2, 0]);
        assert_eq!(divide(&[scripts(16, 1, 0)], &supplies), [2, 1], "the first is full");
        assert_eq!(divide(&[scripts(8, 1, 0), scripts(6, 1, 1)], &supplies), [2, 3]);
        assert_eq!(divide(&[scripts(3, 6, 0)], &supplies), [0, 3], "too wide for the first");
        assert_eq!(divide(&[scripts(5, 9, 0), scripts(5, 1, 3)], &supplies), [0, 0], "none can run these");
        assert_eq!(divide(&[scripts(3, 3, 0)], &[supply(4, 0, 0, 9)]), [3], "one of four threads stays free");
    }

    #[test]
    fn workers_that_are_there_go_before_new_ones() {
        let supplies = [supply(4, 0, 0, 9), supply(4, 0, 2, 9)];
        assert_eq!(divide(&[scripts(8, 1, 0)], &supplies), [0, 2]);
        assert_eq!(divide(&[scripts(12, 1, 0)], &supplies), [1, 2]);
    }
}
