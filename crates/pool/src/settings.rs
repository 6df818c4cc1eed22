//! How a pool is shaped: how many workers, how long they live, how much may wait.

use std::time::Duration;

/// How a pool is shaped. The default is for general work; [`Settings::database`] for connections.
/// Change what you need: `Settings { max: 4, ..Settings::default() }`; there will be more fields.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Workers that are always there.
    pub min: usize,
    /// Workers at most.
    pub max: usize,
    /// A worker above `min` ends after so long without a call.
    pub idle_timeout: Duration,
    /// A worker is replaced after so many calls, give or take an eighth.
    pub max_calls: Option<u64>,
    /// A worker is replaced at this age, give or take an eighth.
    pub max_age: Option<Duration>,
    /// A process is replaced once it uses so many bytes of memory.
    pub max_memory: Option<u64>,
    /// Calls that may wait for a worker, beside those for which one is being started.
    pub queue: usize,
    /// What a caller gets when that many wait already.
    pub when_full: WhenFull,
    /// How long a call may take, waiting included, where neither caller nor operation says more.
    pub timeout: Duration,
    /// What becomes of a call that took too long.
    pub on_timeout: OnTimeout,
    /// Threads given up for a call that took too long, at most: beyond it, such a call keeps its
    /// worker.
    pub max_abandoned: usize,
    /// How long a worker may take to start, its `init` included.
    pub start_timeout: Duration,
    /// How long a worker that was asked to stop may take.
    pub stop_timeout: Duration,
    /// Arguments and results, at most.
    pub max_frame: usize,
}

/// What a caller gets when the queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// An error at once, with depth and limit.
    Refuse,
    /// It waits until there is room, within the time of its call: in line, first come first served.
    Wait,
}

/// What becomes of a call that took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTimeout {
    /// A process is killed and replaced. A thread cannot be: it is given up and replaced, up to
    /// [`Settings::max_abandoned`].
    Replace,
    /// It goes on, and keeps its worker until it is done.
    Leave,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            min: 2,
            max: 8,
            idle_timeout: Duration::from_secs(60),
            max_calls: Some(5_000),
            max_age: None,
            max_memory: None,
            queue: 100,
            when_full: WhenFull::Refuse,
            timeout: Duration::from_secs(30),
            on_timeout: OnTimeout::Replace,
            max_abandoned: 4,
            start_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(5),
            max_frame: 64 << 20,
        }
    }
}

impl Settings {
    /// For workers that hold a database connection each.
    pub fn database() -> Self {
        Self {
            min: 1,
            max: 4,
            idle_timeout: Duration::from_secs(300),
            max_calls: Some(10_000),
            ..Self::default()
        }
    }

    /// What is wrong with them, if anything is.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        match self {
            Self { max: 0, .. } => Some("a pool needs at least one worker"),
            Self { min, max, .. } if min > max => Some("a pool's min is above its max"),
            Self { max_calls: Some(0), .. } => Some("a worker must be good for one call at least"),
            Self { max_age: Some(Duration::ZERO), .. } => {
                Some("a worker must be good for a moment")
            }
            Self { timeout, .. } if timeout.is_zero() => Some("no call can be done in no time"),
            _ => None,
        }
    }
}
