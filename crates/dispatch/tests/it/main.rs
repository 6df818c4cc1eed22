//! Dispatch from outside.

#![expect(unreachable_pub, reason = "modules of one binary")]

mod kit;
mod pool;
mod systems;
mod wire;
