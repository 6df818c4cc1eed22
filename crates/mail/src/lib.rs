//! Mail: MJML templates, a crash-safe spool, and a sender.
//!
//! A message passes three stages. [`mjml`] renders a template to HTML with one of three renderers. The
//! [`spool`] stores one file per message until the message is sent or has failed. [`send`] delivers it to a
//! mail server.
//!
//! [`digest`] renders the rows of a batch and enqueues them; [`group_commit`] groups concurrent enqueues into
//! one disk sync.
//!
//! Decisions (when to retry, what a crash left behind, which files are old) are pure functions; the code that
//! touches disk and network is thin.

pub mod digest;
pub mod group_commit;
mod html_to_text;
pub mod message_builder;
pub mod mjml;
mod quoted_printable;
pub mod send;
pub mod spool;

pub use html_to_text::html_to_text;
