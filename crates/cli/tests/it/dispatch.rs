//! Pools of script workers as users see them: the binary, real processes, and their failures.

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
