//! Batches: both wires against the fake, and the conductor.

mod conductor;
mod kit;
mod tripwire;
mod wires;
