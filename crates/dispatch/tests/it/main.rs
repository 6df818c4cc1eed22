//! Dispatch from outside.

mod systems;
