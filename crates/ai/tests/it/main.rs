//! Providers and response schemas, by topic: the simulated ones on paused time, the real ones against a fake.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may give up loudly")]

mod answering;
mod any_text;
mod asking;
mod batches;
mod contract_docs;
mod contract_peek;
mod contract_reply;
mod contract_request;
mod contract_schema;
mod desk;
mod echo;
mod fake_keys;
mod gateway;
mod limiter;
mod litellm;
mod prices;
mod profile;
mod samples;
mod schema;
mod script_mistakes;
mod scripted;
mod talk;
mod vault;
mod vault_master;
mod vault_rewrap;
mod vault_silence;
mod wires;
