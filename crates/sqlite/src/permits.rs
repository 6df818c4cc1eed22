//! Bounded pools in the file, for processes of one machine.
//!
//! `verbs` are what the seam asks for, `pool` is a pool's row and its line, `hints` tells whoever waits,
//! `steady` is the clock. Nothing here waits for the disk but a change of a maximum: a machine that lost
//! power has no holders.

mod hints;
mod pool;
mod stats;
pub(crate) mod steady;
pub(crate) mod verbs;

pub(crate) use hints::Hints;
pub(crate) use stats::{names, stats};
