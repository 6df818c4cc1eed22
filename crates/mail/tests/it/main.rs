//! Integration tests of the mail crate.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod mjml;
mod send;
mod spool;
