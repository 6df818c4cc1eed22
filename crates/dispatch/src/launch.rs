//! Starting and releasing workers: how many there should be, and who is asked for them.
//!
//! [`scale`] decides, without a system; [`Launcher`] carries it out. A launch that fails backs off, and
//! only that: nothing ever stops a pool from trying again.

mod fates;
mod launcher;
pub mod scale;

pub use launcher::{Explanation, Launcher, Recipe, Round, Sight, Submitted};
