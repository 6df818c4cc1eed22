//! The state machines of units, batches and schedules, and the decisions of claims: every row of
//! their tables, and their laws.

#![expect(clippy::unwrap_used, reason = "what tests build is known to be good")]

mod batch;
mod batch_actions;
mod claim;
mod schedule;
mod stride;
mod unit_state;
mod unit_state_laws;
