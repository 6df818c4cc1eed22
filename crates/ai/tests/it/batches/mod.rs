//! Batches: both wires against the fake, and the conductor.

mod kit;
mod wires;
