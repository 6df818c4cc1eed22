//! Bounded pools in the file, for processes of one machine.
//!
//! `ops` implements the operations, `pool` a pool's row and its wait queue, `wakeups` wakes
//! waiters, `boot_clock` is the clock. Only changes of a maximum wait for the disk: a machine that
//! lost power has no holders.

pub(crate) mod boot_clock;
pub(crate) mod ops;
mod pool;
mod stats;
mod wakeups;

pub(crate) use stats::list;
pub(crate) use wakeups::PermitWakeups;
