//! Mail, from outside.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod mjml;
mod send;
mod spool;
