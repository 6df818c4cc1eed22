//! `mail failures` and `mail retry`: list and retry failed messages.

use longshore_mail::spool::{FailedMessage, MessageKey};
use serde::Serialize;

use super::now;
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::mail;
use crate::output::{Table, cell};
use crate::settings::Settings;

#[derive(Serialize)]
struct FailureRow {
    key: String,
    to: Vec<String>,
    at: String,
    why: String,
}

/// Lists failed messages.
pub fn list(limit: usize, settings: &Settings) -> anyhow::Result<ExitCode> {
    let row = |FailedMessage { key, to, at, why }: FailedMessage| {
        let (key, at) = (key.to_string(), at.to_string());
        FailureRow { key, to, at, why }
    };
    let failures = mail::spool(&settings.mail)?.failures(limit)?;
    let rows: Vec<FailureRow> = failures.into_iter().map(row).collect();
    settings.output.list(&rows, || {
        let mut table = Table::new(["key", "to", "when", "why"].map(cell), "nothing has failed");
        for FailureRow { key, to, at, why } in &rows {
            table.row([cell(key), cell(to.join(", ")), cell(at), cell(why)]);
        }
        table
    })?;
    Ok(ExitCode::Good)
}

#[derive(Serialize)]
struct RetryResult {
    retried: usize,
}

/// Makes one failed message pending again, or all.
pub fn retry(key: Option<&str>, settings: &Settings) -> anyhow::Result<ExitCode> {
    let spool = mail::spool(&settings.mail)?;
    let retried = match key {
        None => spool.retry_all(now())?,
        Some(text) => {
            let mut found = spool.retry(&MessageKey::new(text)?, now())?;
            if let Some(written) = MessageKey::from_encoded(text).filter(|_| !found) {
                found = spool.retry(&written, now())?;
            }
            let missing = || anyhow::anyhow!("no message of key `{text}` has failed");
            found.then_some(1).ok_or_else(missing).hint("`longshore mail failures` lists them")?
        }
    };
    let words = || format!("{retried} messages are pending again");
    settings.output.answer(&RetryResult { retried }, words)?;
    Ok(ExitCode::Good)
}
