//! The state machines of units and batches: every row of their tables, and what must hold always.

#![expect(clippy::unwrap_used, reason = "what tests build is known to be good")]

mod batch;
mod batch_actions;
mod machine;
mod machine_laws;
mod schedule;
