//! Dispatch from outside.

mod kit;
mod pool;
mod systems;
