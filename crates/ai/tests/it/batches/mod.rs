//! Batches: both batch APIs against the fake, and the runner.

mod crash_points;
mod fixture;
mod providers;
mod runner;
