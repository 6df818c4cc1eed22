//! Pools on real schedulers, or on fakes where a scheduler cannot be installed.

mod fake_schedulers;
mod missed_events;
mod node_loss;
mod pool_size;
pub mod schedulers;
mod storm;
