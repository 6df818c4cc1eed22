//! Dispatch from outside.
