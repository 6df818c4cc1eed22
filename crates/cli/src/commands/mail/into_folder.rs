//! Messages of one digest as files. Whatever else is in the spool is left to `mail send`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longshore::SystemClock;
use longshore_mail::send::{Sender, SenderSettings};
use longshore_mail::spool::{Key, Share};

use super::{now, send};
use crate::error::WithHint;
use crate::mail;
use crate::settings::Settings;

/// Writes the due messages whose keys begin with `own` as files into a folder, and says so.
pub async fn into_folder(folder: &Path, own: &str, settings: &Settings) -> anyhow::Result<()> {
    let spool = mail::spool(&settings.mail)?;
    let carrier = mail::carrier(Some(folder), &settings.mail)?;
    let shard = spool.shard(Share::ALL).hint("`longshore mail send` is at this spool")?;
    // Files are a flood to no domain.
    let sending = SenderSettings { per_domain: None, ..mail::sender(&settings.mail) };
    let shard = shard.only(Key::new(own)?);
    let sender = Sender::new(shard, carrier, sending, Arc::new(SystemClock)).await?;
    let sent = send::empty(&sender, &AtomicBool::new(false)).await?;
    settings.output.note(format!("{} messages are in {}", sent.sent, folder.display()));
    let left = sent.again + sent.failed;
    if left > 0 {
        settings.output.note(format!("warning: {left} could not be written, and are in the spool"));
    }
    let others = spool.stats(now())?.due.saturating_sub(sent.again);
    if others > 0 {
        settings.output.note(format!("{others} due messages of others stay in the spool"));
    }
    Ok(())
}
