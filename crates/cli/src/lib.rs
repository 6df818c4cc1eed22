//! The `longshore` binary: reads arguments and settings, runs one command, returns its exit code.
//!
//! Without the feature `standard` there is one command, `batch run` on the embedded store: what
//! `cargo quickstart` builds.

#![expect(unreachable_pub, reason = "only `main` is exported; `pub` marks a module's front door")]
#![cfg_attr(
    not(feature = "standard"),
    allow(dead_code, unused_imports, reason = "the quickstart build uses a part of each module")
)]

mod actions;
mod alarms;
#[cfg(feature = "standard")]
mod app;
mod args;
#[cfg(feature = "standard")]
mod batch_start;
mod commands;
mod config;
mod env;
mod error;
mod exec;
mod exit;
mod http;
mod inference;
#[cfg(feature = "standard")]
mod job;
mod lines;
mod logging;
#[cfg(feature = "standard")]
mod mail;
#[cfg(not(feature = "standard"))]
#[path = "mail/without_mail.rs"]
mod mail;
#[cfg(feature = "standard")]
mod misread;
mod moment;
mod money;
mod output;
mod permits;
mod pools;
#[cfg(not(feature = "standard"))]
mod quickstart;
mod screen;
mod secret;
#[cfg(feature = "standard")]
mod server;
mod settings;
mod size;
mod span;
mod store;
#[cfg(feature = "standard")]
mod supervise;
mod telemetry;
mod vault;
mod whoami;

#[cfg(feature = "standard")]
pub use app::main;
#[cfg(not(feature = "standard"))]
pub use quickstart::main;
