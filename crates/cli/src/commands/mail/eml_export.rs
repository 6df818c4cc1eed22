//! Writes the messages of one digest as files. Other messages of the spool are left to `mail send`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longshore::SystemClock;
use longshore_mail::send::{Sender, SenderSettings};
use longshore_mail::spool::{MessageKey, Share};

use super::{now, send};
use crate::error::WithHint;
use crate::mail;
use crate::settings::Settings;

/// Writes the due messages with keys that begin with `own` as files into a folder, and prints their
/// number.
pub async fn export_due(folder: &Path, own: &str, settings: &Settings) -> anyhow::Result<()> {
    let spool = mail::spool(&settings.mail)?;
    let transport = mail::transport(Some(folder), &settings.mail)?;
    let shard = spool.shard(Share::ALL).hint("is `longshore mail send` using this spool?")?;
    // A folder needs no limit per domain.
    let sending = SenderSettings { per_domain: None, ..mail::sender_settings(&settings.mail) };
    let shard = shard.with_key_prefix(MessageKey::new(own)?);
    let sender = Sender::new(shard, transport, sending, Arc::new(SystemClock)).await?;
    let sent = send::send_due(&sender, &AtomicBool::new(false)).await?;
    settings.output.note(format!("{} messages written to {}", sent.sent, folder.display()));
    let left = sent.retried + sent.failed;
    if left > 0 {
        settings.output.note(format!("warning: {left} could not be written and stay in the spool"));
    }
    let others = spool.stats(now())?.due.saturating_sub(sent.retried);
    if others > 0 {
        settings.output.note(format!("{others} other due messages stay in the spool"));
    }
    Ok(())
}
