//! Keeping worker processes alive.
//!
//! What should happen is decided in [`roster`] and [`version`], which know nothing of processes;
//! [`process`] starts and ends them, [`notify`] tells systemd, [`lock`] keeps a second supervisor out.
//! `commands/supervise.rs` brings them together.

mod group;
pub mod lock;
pub mod notify;
pub mod process;
mod roster;
pub mod scale;
#[cfg(test)]
mod tests;
pub mod version;
pub mod voice;

pub use roster::{Deed, Ended, Id, Roster, Rules, Shape, Why};
