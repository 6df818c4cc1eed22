//! The `longshore` binary: reads arguments and settings, runs one command, returns its exit code.
//!
//! Without the feature `standard` there is one command, `batch run` on the embedded store: the
//! build of `cargo quickstart`.

#![expect(unreachable_pub, reason = "only `main` is exported; `pub` marks a module's interface")]
#![cfg_attr(
    not(feature = "standard"),
    allow(dead_code, unused_imports, reason = "the quickstart build uses a part of each module")
)]

mod alert_sinks;
mod amount_args;
#[cfg(feature = "standard")]
mod app;
mod args;
#[cfg(feature = "standard")]
mod audit;
mod batch_hooks;
#[cfg(feature = "standard")]
mod batch_start;
mod commands;
mod config;
#[cfg(feature = "standard")]
mod csv;
mod env;
mod error;
mod exec;
mod exit;
mod external_workers;
mod host_identity;
mod http;
mod inference;
#[cfg(feature = "standard")]
mod jobfile;
mod keyring;
mod logging;
#[cfg(feature = "standard")]
mod mail;
#[cfg(not(feature = "standard"))]
#[path = "mail/without_mail.rs"]
mod mail;
mod ndjson_reader;
mod output;
#[cfg(not(feature = "standard"))]
mod quickstart;
#[cfg(feature = "standard")]
mod remote_target;
mod secret_prompt;
mod semaphore_backend;
mod settings;
mod store;
#[cfg(feature = "standard")]
mod supervise;
mod telemetry;
mod terminal;
mod time_arg;
#[cfg(feature = "standard")]
mod usage_error;

#[cfg(feature = "standard")]
pub use app::main;
#[cfg(not(feature = "standard"))]
pub use quickstart::main;
