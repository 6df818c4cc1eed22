//! Pools whose workers are started by real schedulers, and by imitations where there are none.

mod bases;
mod fakes;
mod habits;
mod sizes;
mod storm;
mod untold;
