//! Integration tests: the router over real stores, with and without tokens.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may give up loudly")]

mod actions;
mod auth;
mod batch_ingest;
mod client;
mod connections;
mod fixture;
mod fuzz;
mod isolation;
mod kinds;
mod openapi;
mod pages;
mod permits;
mod reply_queues;
mod streams;
