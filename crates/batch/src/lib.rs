//! Batches of database rows. Each row is prepared (PRE), sent to a model or to a recipient
//! ([`definition::RowStep`]) and applied (POST), exactly once.
//!
//! A [`Definition`] says what a batch does. It is read from a batch file ([`mod@file`]) or built in
//! Rust, and is stored with the batch, so that any worker can run its rows. The [`RowEnqueuer`]
//! streams candidate rows into the batch; [`RowHandler`] runs one row. Both read the rows through a
//! [`RowSource`].

pub mod alert_monitor;
pub mod alerts;
mod answer_samples;
pub mod answers;
pub mod check;
pub mod checkpoint;
pub mod command;
pub mod completion;
pub mod definition;
pub mod file;
pub mod handler;
pub mod provider_batch;
pub mod row_enqueuer;
pub mod row_listing;

pub mod batch_id;
pub mod mail;
pub mod prompt;
pub mod prompt_lookup;

mod jitter;
pub mod pre_post;
pub mod report;
mod row_loader;
pub mod rows;
pub mod sql;
pub mod sql_json;
pub mod sql_post;
pub mod sql_pre;
mod step_condition;
pub mod template;
mod throttled_log;
pub mod verdict_rules;

pub use alert_monitor::AlertMonitor;
pub use answer_samples::{AnswerSample, AnswerSamples};
pub use command::Commands;
pub use completion::CompletionHandler;
pub use definition::Definition;
pub use file::{BatchFile, FileError, LoadedBatchFile, Overrides};
pub use handler::RowHandler;
pub use provider_batch::ProviderBatchHandler;
pub use report::Report;
pub use row_enqueuer::{BatchFill, FillError, RowEnqueuer};
pub use rows::{DatabaseRows, RowSource, Sources};
