//! Starting and releasing workers: how many there should be, and who is asked for them.
//!
//! [`scale`] decides, without a system; [`Launcher`] carries it out. A launch that fails backs off, and
//! only that: nothing ever stops a pool from trying again.

mod fates;
mod intents;
mod launcher;
mod outlook;
pub mod scale;
mod watched;

pub use intents::Intents;
pub use launcher::{Launcher, Recipe, Round, Sight, Submitted};
pub use outlook::{Asking, Explanation, Outlook};
