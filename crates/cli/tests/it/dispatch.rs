//! Pools of script workers as users meet them: the binary, real processes, and what can happen to them.

mod base;
mod kills;
mod kit;
