//! Inference: profiles, retries, fallbacks, budgets and call records.

mod budget_bound;
mod budgets;
mod call_records;
mod events;
mod fallbacks;
pub(crate) mod fixture;
mod limits;
pub(crate) mod outages;
mod passthrough;
mod profiles;
mod retries;
mod schemas;
mod suspended;
