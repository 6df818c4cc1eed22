//! A fault, how long it lasts, and what a cell reports.

use std::fmt;
use std::time::{Duration, Instant};

use longshore_testkit::fault_proxy::{Direction, FaultProxy, LinkFault};

use crate::http::server::{HttpServer, answer};
use crate::support::{ChildGuard, TIMEOUT, eventually, peak_memory, pick_size, signal};

/// What happens to a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Latency,
    Stall,
    Cut,
    HalfOpen,
    Restart,
    Full,
    Slow,
    ReadOnly,
    IoError,
    Clock,
}

/// The columns of the matrix.
pub const FAULTS: [Fault; 10] = [
    Fault::Latency,
    Fault::Stall,
    Fault::Cut,
    Fault::HalfOpen,
    Fault::Restart,
    Fault::Full,
    Fault::Slow,
    Fault::ReadOnly,
    Fault::IoError,
    Fault::Clock,
];

/// The time within which work must continue after a fault.
pub const RECOVERY_LIMIT: Duration = Duration::from_secs(120);
/// How much a process may grow because of a fault.
const MAX_GROWTH: u64 = 96 * 1024 * 1024;
/// Bytes per second of a slow link: a small request takes a part of a second, a large one many.
const SLOW_RATE: u32 = 20_000;

impl Fault {
    pub fn title(self) -> &'static str {
        match self {
            Self::Latency => "latency 3 s",
            Self::Stall => "stall 20 s",
            Self::Cut => "cut 20 s",
            Self::HalfOpen => "half-open",
            Self::Restart => "restart",
            Self::Full => "full",
            Self::Slow => "slow",
            Self::ReadOnly => "read-only",
            Self::IoError => "I/O errors",
            Self::Clock => "clock jumps",
        }
    }

    /// How long the fault lasts: less in `./test` than its title says.
    pub fn duration() -> Duration {
        pick_size(Duration::from_secs(4), Duration::from_secs(20))
    }

    /// How long one unit takes if a slot runs `units` of them: the work must outlast jumps of the clock.
    pub fn unit_time(self, units: u32, usual: Duration) -> Duration {
        if self == Self::Clock { usual.max(Self::duration() * 2 / units) } else { usual }
    }

    /// The delay of [`Fault::Latency`].
    pub fn latency() -> Duration {
        pick_size(Duration::from_millis(500), Duration::from_secs(3))
    }

    /// Injects the fault into a link, and ends it.
    pub fn inject(self, proxy: &FaultProxy) {
        proxy.set(match self {
            Self::Latency => LinkFault::Latency(Self::latency()),
            Self::Stall => LinkFault::Stall(Direction::Both),
            Self::Cut => LinkFault::Cut,
            Self::HalfOpen => LinkFault::HalfOpen,
            Self::Slow => LinkFault::Drip(SLOW_RATE),
            Self::Restart | Self::Full | Self::ReadOnly | Self::IoError | Self::Clock => {
                unreachable!("not a fault of the link")
            }
        });
        if self != Self::HalfOpen {
            std::thread::sleep(Self::duration());
        }
        proxy.heal();
    }
}

/// The measurements of a cell that kept its promises.
#[derive(Debug, Default)]
pub struct CellReport {
    /// From the end of the fault until work continued.
    pub recovery: Duration,
    /// What else is worth reading, such as a log line.
    pub notes: String,
    /// Why this machine cannot run the cell.
    pub skipped: Option<String>,
}

impl CellReport {
    /// A cell that this machine cannot run.
    pub fn skipped(reason: impl fmt::Display) -> Self {
        Self { skipped: Some(reason.to_string()), ..Self::default() }
    }
}

impl fmt::Display for CellReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.skipped {
            Some(reason) => write!(f, "SKIPPED: {reason}"),
            None => write!(f, "recovered in {:.1} s. {}", self.recovery.as_secs_f64(), self.notes),
        }
    }
}

/// Stops a process for the fault's duration: all of it, or again and again.
pub fn freeze(pid: u32, fault: Fault) {
    // How long the process is stopped, and how long it runs in between.
    let (stopped, runs) = match fault {
        Fault::Latency => (Fault::latency(), Duration::from_millis(200)),
        Fault::Slow => (Duration::from_millis(90), Duration::from_millis(10)),
        _ => (Fault::duration(), Duration::ZERO),
    };
    let began = Instant::now();
    while began.elapsed() < Fault::duration() {
        assert!(signal(pid, "STOP"));
        std::thread::sleep(stopped);
        assert!(signal(pid, "CONT"));
        std::thread::sleep(runs);
    }
}

/// Waits until `progress` is larger than now. Returns how long that took.
#[track_caller]
pub fn recovery(mut progress: impl FnMut() -> usize, all: usize) -> Duration {
    let (healed, before) = (Instant::now(), progress());
    eventually(RECOVERY_LIMIT, || {
        let now = progress();
        (now > before || now >= all).then_some(())
    });
    healed.elapsed()
}

/// Processes that a fault must neither end nor let grow.
pub struct Bystanders(Vec<(u32, u64)>);

impl Bystanders {
    pub fn new<'a>(children: impl IntoIterator<Item = &'a ChildGuard>) -> Self {
        Self(children.into_iter().map(|child| (child.0.id(), peak_memory(child.0.id()))).collect())
    }

    #[track_caller]
    pub fn assert_alive_and_bounded(&self) {
        for (pid, before) in &self.0 {
            assert!(crate::support::is_alive(&pid.to_string()), "process {pid} ended");
            let now = peak_memory(*pid);
            assert!(now < before + MAX_GROWTH, "process {pid}: {before} bytes before, {now} at its peak");
        }
    }
}

/// A receiver of alerts.
pub struct AlertReceiver(HttpServer);

impl AlertReceiver {
    pub fn start() -> Self {
        Self(HttpServer::answering(&[answer(204, "", "")]))
    }

    /// The section of a configuration that names it.
    pub fn config(&self) -> String {
        format!("[alerts]\nwebhook = \"{}\"\n", self.0.url)
    }

    /// How many alerts with these words have arrived, if not fewer than `least`. It forgets them.
    pub fn count(&self, words: &str, least: usize) -> usize {
        let mut found = 0;
        let mut take = || {
            while let Some(alert) = self.0.take_request() {
                found += usize::from(alert.body.contains(words));
            }
            (found >= least).then_some(())
        };
        eventually(TIMEOUT, &mut take);
        found
    }
}

/// How many lines of a log contain `words`.
pub fn count_log_lines(log: &str, words: &str) -> usize {
    log.lines().filter(|line| line.contains(words)).count()
}
