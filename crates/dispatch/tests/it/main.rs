//! Dispatch from outside.

#![expect(unreachable_pub, reason = "modules of one binary")]

mod systems;
