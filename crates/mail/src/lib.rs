//! Mail: templates in MJML, a spool that loses nothing, and whoever sends from it.
//!
//! A message goes through three places. [`mjml`] makes HTML of a template, by whichever renderer; the
//! [`spool`] keeps one file per message from the moment somebody was promised that it goes out; and
//! [`send`] takes it from there to a mail server, once as far as anybody can know.
//!
//! [`digest`] is the way from the rows of a batch into the spool, and the [`letterbox`] its door.
//!
//! What is decided (when a message is tried again, what a crash left behind, which files are old) is
//! decided by plain functions; what touches disk and network is thin.

pub mod digest;
pub mod letter;
pub mod letterbox;
pub mod mjml;
mod quoted;
pub mod send;
pub mod spool;
mod text;

pub use text::from_html;
