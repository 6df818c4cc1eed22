//! Pools on real schedulers, or on fakes where a scheduler cannot be installed.

mod bases;
mod fakes;
mod habits;
mod sizes;
mod storm;
mod untold;
