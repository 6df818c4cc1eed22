//! Inference: profiles, retries, fallbacks, budgets, call records, health, proxies.

mod budget_bound;
mod budgets;
mod call_records;
mod credit;
mod events;
mod fallbacks;
pub(crate) mod fixture;
mod health;
mod limits;
pub(crate) mod outages;
mod passthrough;
mod profiles;
mod proxies;
mod retries;
mod schemas;
mod suspended;
