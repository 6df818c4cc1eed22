//! Dispatch from outside.

#![expect(unreachable_pub, reason = "modules of one binary")]

mod kit;
mod operate;
mod pool;
mod streams;
mod systems;
