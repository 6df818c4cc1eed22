//! Calls that shared a worker when it stopped responding: one of them blocked it, and which one is
//! unknown. If such a call is made again, it runs alone on a worker. So a call is only blamed for
//! what it does itself.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::job::{Job, Work};
use crate::payload::CallPayload;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// Number of suspects; beyond it the oldest is forgotten.
const MAX_SUSPECTS: usize = 1024;

/// Suspects, by operation and arguments.
#[derive(Default)]
pub(crate) struct SuspectCalls {
    hashes: Mutex<VecDeque<u64>>,
    /// Their number: calls do not take the lock while there are none.
    count: AtomicU64,
}

impl SuspectCalls {
    pub(crate) fn add(&self, job: &Job) {
        let Some(hash) = job_hash(job) else { return };
        self.change(|hashes| {
            if !hashes.contains(&hash) {
                hashes.truncate(MAX_SUSPECTS - 1);
                hashes.push_front(hash);
            }
        });
    }

    /// The call was answered.
    pub(crate) fn remove(&self, job: &Job) {
        let Some(hash) = job_hash(job) else { return };
        self.change(|hashes| hashes.retain(|other| *other != hash));
    }

    pub(crate) fn contains(&self, operation: &str, arguments: &CallPayload) -> bool {
        self.count.load(Ordering::Acquire) > 0
            && lock(&self.hashes).contains(&call_hash(operation, arguments))
    }

    fn change(&self, change: impl FnOnce(&mut VecDeque<u64>)) {
        let mut hashes = lock(&self.hashes);
        change(&mut hashes);
        self.count.store(hashes.len() as u64, Ordering::Release);
    }
}

fn job_hash(job: &Job) -> Option<u64> {
    match &job.work {
        Work::Operation { arguments, .. } => Some(call_hash(&job.operation, arguments)),
        Work::Closure(_) => None,
    }
}

fn call_hash(operation: &str, arguments: &CallPayload) -> u64 {
    let mut hasher = DefaultHasher::new();
    (operation, arguments.as_bytes()).hash(&mut hasher);
    hasher.finish()
}
