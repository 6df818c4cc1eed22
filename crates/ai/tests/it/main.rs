//! Tests by topic: simulated providers on paused time, real ones against a fake.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may give up loudly")]

mod arbitrary_input;
mod batches;
mod contract_docs;
mod contract_partial_parse;
mod contract_reply;
mod contract_request;
mod contract_schema;
mod conversation;
mod echo;
mod fake_keys;
mod fuzz;
mod gateway;
mod inference;
mod limiter;
mod litellm;
mod prices;
mod profile;
mod providers;
mod questions;
mod schema;
mod schema_samples;
mod script_errors;
mod scripted;
mod vault;
mod vault_master;
mod vault_redaction;
mod vault_rewrap;
mod worker;
