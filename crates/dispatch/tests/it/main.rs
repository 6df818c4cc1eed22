//! Dispatch from outside.

mod kit;
mod operate;
mod pool;
mod streams;
mod systems;
