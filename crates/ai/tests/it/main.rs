//! The simulated providers and response schemas, by topic, on paused time.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may give up loudly")]

mod any_text;
mod contract_docs;
mod contract_peek;
mod contract_reply;
mod contract_request;
mod contract_schema;
mod desk;
mod echo;
mod fake_keys;
mod limiter;
mod prices;
mod profile;
mod samples;
mod schema;
mod script_mistakes;
mod scripted;
mod vault;
mod vault_master;
mod vault_rewrap;
mod vault_silence;
