//! Pools of script workers as users meet them: the binary, real processes, and what can happen to them.

pub mod base;
mod conditions;
mod kills;
pub mod kit;
mod late;
mod network;
mod odd_folders;
mod rules;
mod scripts;
mod sentinels;
mod silent_system;
mod storm;
mod weights;
