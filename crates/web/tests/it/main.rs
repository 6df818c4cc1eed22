//! The API as strangers and friends meet it: a router over real stores.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may give up loudly")]

mod actions;
mod client;
mod connections;
mod document;
mod doors;
mod fill;
mod isolation;
mod kit;
mod pages;
mod permits;
mod streams;
