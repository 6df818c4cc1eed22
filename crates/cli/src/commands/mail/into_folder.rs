//! Messages of one digest as files. Whatever else is in the spool is left to `mail send`.

use std::path::Path;

use longshore_mail::spool::{Key, Share, Verdict};

use super::now;
use crate::error::WithHint;
use crate::mail;
use crate::settings::Settings;

/// The keys of messages are that long at least in the names of their files.
const SURE: usize = 80;

/// Writes the due messages whose keys begin with `own` as files into a folder, and says so.
pub async fn into_folder(folder: &Path, own: &str, settings: &Settings) -> anyhow::Result<()> {
    let (spool, own) = (mail::spool(&settings.mail)?, Key::new(own)?);
    let carrier = mail::carrier(Some(folder), &settings.mail)?;
    let shard = spool.shard(Share::ALL).hint("`longshore mail send` is at this spool")?;
    let policy = mail::sender(&settings.mail).policy;
    shard.recover(&policy, now())?;
    spool.deliver_promised(now())?;
    let due = shard.due(now(), usize::MAX)?.names;
    let (own, others): (Vec<_>, Vec<_>) =
        due.into_iter().partition(|name| begins_with(&name.key, &own));
    let (mut written, mut left) = (0, 0);
    for name in own {
        let Some(mut held) = shard.take(&name)? else { continue };
        let outcome = match carrier.offer(held.message()).await {
            Err(outcome) => outcome,
            Ok(offered) => {
                held.hands_over(&policy, now())?;
                offered.hand_over(held.message()).await
            }
        };
        match held.settle(outcome, &policy, now())? {
            Verdict::Sent => written += 1,
            _ => left += 1,
        }
    }
    settings.output.note(format!("{written} messages are in {}", folder.display()));
    if left > 0 {
        settings.output.note(format!("warning: {left} could not be written, and are in the spool"));
    }
    if !others.is_empty() {
        let others = others.len();
        settings.output.note(format!("{others} due messages of others stay in the spool"));
    }
    Ok(())
}

/// Whether a key is one of those that begin so, as far as names of files tell.
fn begins_with(key: &Key, own: &Key) -> bool {
    let (key, own) = (key.as_file(), own.as_file());
    let sure = own.len().min(SURE);
    key.get(..sure) == own.get(..sure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_by_what_they_begin_with_also_if_they_are_long() {
        let key = |text: &str| Key::new(text).unwrap();
        let own = key("t/news/daily/");
        assert!(begins_with(&key("t/news/daily/7/2026-11-16"), &own));
        assert!(begins_with(&key(&format!("t/news/daily/{}", "7".repeat(300))), &own));
        for other in ["t/news/daily", "t/news/immediate/7/1", "u/news/daily/7/1", "welcome/7"] {
            assert!(!begins_with(&key(other), &own), "{other}");
        }
        let long = format!("t/{}/daily/", "n".repeat(300));
        assert!(begins_with(&key(&format!("{long}7/2026-11-16")), &key(&long)));
    }
}
