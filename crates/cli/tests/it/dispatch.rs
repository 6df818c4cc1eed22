//! Pools of script workers as users see them: the binary, real processes, and their failures.

mod allocations;
mod bad_folders;
mod batches;
mod commands;
mod comparison;
mod explain;
pub mod fixture;
mod good_work;
mod hanging_launcher;
mod kills;
mod late;
pub mod launcher;
mod names;
mod network;
mod pool_lifecycle;
mod python;
mod remote_stop;
mod resources;
mod scheduling;
mod scripts;
mod sentinels;
mod storm;
mod workers;
mod wrong_uses;
