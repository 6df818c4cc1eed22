//! Chaos test of one bounded pool. Many processes acquire permits, release them and give up. Meanwhile the
//! driver kills and stops processes, resizes the pool and restarts its server.
//!
//! A referee outside the pool counts permits. Each process reports to it before a request, after a grant and
//! before a release, and continues when the referee has confirmed the report. So a permit that the referee
//! counts is really held: for one lease from before the request, even if the process dies. The referee
//! depends neither on the pool's own statistics nor on the clock of another process.

mod driver;
mod oracle;
mod process;
mod referee;
mod report;

pub use driver::{ChaosTest, ProcessFactory};
pub use process::{ChaosProcessConfig, run_process};
pub use report::ChaosReport;
