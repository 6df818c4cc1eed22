//! A pool's settings: number of workers, their lifetime, limits of the queue.

use std::time::Duration;

/// A pool's settings. The default is for general work; [`PoolSettings::database`] is for connections.
/// Change what you need: `Settings { max: 4, ..Settings::default() }`. More fields may be added.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolSettings {
    /// Minimum number of workers.
    pub min: usize,
    /// Maximum number of workers.
    pub max: usize,
    /// A worker above `min` stops after it was idle this long.
    pub idle_timeout: Duration,
    /// A worker is given no more calls than this. Its replacement is started when three quarters of
    /// them are done, or an eighth later, so that not all workers are replaced together.
    pub max_calls: Option<u64>,
    /// A worker is replaced at this age, give or take an eighth.
    pub max_age: Option<Duration>,
    /// A process is replaced once it uses this many bytes of memory.
    pub max_memory: Option<u64>,
    /// Calls that may wait for a worker, in addition to those for which a worker is being started.
    pub queue: usize,
    /// What happens to a call if the queue is full.
    pub when_full: WhenQueueFull,
    /// The timeout of a call, time in the queue included, if neither caller nor operation sets one.
    pub timeout: Duration,
    /// What happens to a call that times out.
    pub on_timeout: OnTimeout,
    /// Maximum number of threads that are abandoned in a timed-out call. Beyond it, a timed-out
    /// call keeps its worker. As many workers, but at least a tenth of `max`, may end their last calls
    /// beside their replacements.
    pub max_abandoned: usize,
    /// How long a worker may take to start, including its `init`.
    pub start_timeout: Duration,
    /// How long a worker may take to stop.
    pub stop_timeout: Duration,
    /// Maximum size of arguments and of results, in bytes.
    pub max_frame: usize,
}

/// What happens to a call if the queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenQueueFull {
    /// It fails at once, with depth and limit.
    Refuse,
    /// It waits for queue space until its deadline, in the order of arrival.
    Wait,
}

/// What happens to a call that times out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTimeout {
    /// A process is killed and replaced. A thread cannot be killed: it is abandoned and replaced,
    /// up to [`PoolSettings::max_abandoned`].
    Replace,
    /// It continues, and keeps its worker until it is done.
    Leave,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            min: 2,
            max: 8,
            idle_timeout: Duration::from_secs(60),
            max_calls: Some(5_000),
            max_age: None,
            max_memory: None,
            queue: 100,
            when_full: WhenQueueFull::Refuse,
            timeout: Duration::from_secs(30),
            on_timeout: OnTimeout::Replace,
            max_abandoned: 4,
            start_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(5),
            max_frame: 64 << 20,
        }
    }
}

impl PoolSettings {
    /// Settings for workers that hold one database connection each.
    pub fn database() -> Self {
        Self {
            min: 1,
            max: 4,
            idle_timeout: Duration::from_secs(300),
            max_calls: Some(10_000),
            ..Self::default()
        }
    }

    /// The first invalid setting, if there is one.
    pub(crate) fn invalid_setting(&self) -> Option<&'static str> {
        match self {
            Self { max: 0, .. } => Some("a pool needs at least one worker"),
            Self { min, max, .. } if min > max => Some("a pool's min is above its max"),
            Self { max_calls: Some(0), .. } => Some("max_calls must be at least 1"),
            Self { max_age: Some(Duration::ZERO), .. } => Some("max_age must be greater than zero"),
            Self { timeout, .. } if timeout.is_zero() => Some("timeout must be greater than zero"),
            _ => None,
        }
    }
}
