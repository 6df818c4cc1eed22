//! Dispatch from outside.

mod kit;
mod operate;
mod pool;
mod silence;
mod streams;
mod systems;
