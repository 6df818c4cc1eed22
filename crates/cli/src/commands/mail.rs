//! `mail`: compiles templates, and fills, shows and empties the spool.

mod check;
mod compile;
mod digest;
mod eml_export;
mod enqueue;
mod failures;
mod send;

use std::path::{Path, PathBuf};

use anyhow::Context;
use longshore::duration;
use longshore_mail::spool::SpoolHealth;

use super::now;
use crate::args::mail::MailCommand as Typed;
use crate::exit::ExitCode;
use crate::mail;
use crate::output::Table;
use crate::settings::Settings;

/// Whether the command handles SIGTERM and SIGINT itself.
pub fn handles_signals(typed: &Typed) -> bool {
    matches!(typed, Typed::Send(_) | Typed::Digest(_))
}

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    match typed {
        Typed::Compile(typed) => compile::run(&typed, settings).await,
        Typed::Check(typed) => check::run(&typed, settings).await,
        Typed::Spool(typed) => enqueue::run(*typed, settings).await,
        Typed::Digest(typed) => digest::run(*typed, settings).await,
        Typed::Send(typed) => send::run(typed, settings).await,
        Typed::Stats { check } => stats(check, settings),
        Typed::Failures { limit } => failures::list(limit, settings),
        Typed::Retry { key, .. } => failures::retry(key.as_deref(), settings),
    }
}

fn stats(check: bool, settings: &Settings) -> anyhow::Result<ExitCode> {
    let stats = mail::spool(&settings.mail)?.stats(now())?;
    let health = stats.health(&settings.mail.thresholds());
    let value = serde_json::json!({
        "pending": stats.pending,
        "due": stats.due,
        "put_off": stats.postponed,
        "oldest_due_seconds": stats.oldest_due.as_secs(),
        "oldest_put_off_seconds": stats.oldest_put_off.as_secs(),
        "sending": stats.sending,
        "failed": stats.failed,
        "failed_lately": stats.failed_lately,
        "sent": stats.sent,
        "health": health,
    });
    settings.output.record(&value, || {
        let mut table = Table::record();
        table.field("health", format!("{health:?}").to_lowercase());
        table.field("pending", stats.pending);
        table.field("due", stats.due);
        if !stats.oldest_due.is_zero() {
            table.field("oldest due", format!("for {}", duration::format(stats.oldest_due)));
        }
        if stats.postponed > 0 {
            table.field("put off", stats.postponed);
            table.field("oldest put off", format!("due for {}", duration::format(stats.oldest_put_off)));
        }
        table.field("sending", stats.sending);
        table.field("failed", stats.failed);
        if stats.failed_lately > 0 {
            table.field("in the last day", stats.failed_lately);
        }
        for (day, count) in &stats.sent {
            table.field(&format!("sent {day}"), count);
        }
        table
    })?;
    let well = health == SpoolHealth::Good;
    Ok(if check && !well { ExitCode::Failures } else { ExitCode::Good })
}

/// The templates in a folder and below, sorted, without partials.
fn templates(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let part = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(['_', '.']));
        match path.is_dir() {
            _ if part => {}
            true => found.extend(templates(&path)?),
            false if path.extension().is_some_and(|end| end == "mjml") => found.push(path),
            false => {}
        }
    }
    found.sort();
    Ok(found)
}

/// The folder of a template.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
