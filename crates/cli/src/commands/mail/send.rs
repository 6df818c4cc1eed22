//! `mail send`: the spool is emptied.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore::SystemClock;
use longshore_mail::send::{Sender, Sent};
use longshore_mail::spool::{Health, Spool, SpoolError};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::now;
use crate::args::mail::Send;
use crate::commands::interrupted;
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::mail::{self, MailSettings};
use crate::settings::Settings;

/// How soon a new message is seen.
const LOOK: Duration = Duration::from_millis(500);
/// How long nothing is done after trouble with the spool, at most.
const LONGEST: Duration = Duration::from_secs(60);
/// Between two looks at the spool's health.
const HEALTH: Duration = Duration::from_secs(60);
/// Between two prunings.
const PRUNE: Duration = Duration::from_secs(3600);

/// Runs the command.
pub async fn run(typed: Send, settings: &Settings) -> anyhow::Result<ExitCode> {
    let spool = mail::spool(&settings.mail)?;
    let carrier = mail::carrier(typed.folder.as_deref(), &settings.mail)?;
    let mut told = std::pin::pin!(interrupted());
    let shard = loop {
        match spool.shard(typed.share) {
            // Whoever is to be replaced goes only when we are up.
            Err(error @ SpoolError::Taken { .. }) if typed.daemon => {
                tracing::info!("{error}: waiting");
                tokio::select! {
                    told = told.as_mut() => return told.map(|()| ExitCode::Good),
                    () = tokio::time::sleep(LOOK) => {}
                }
            }
            shard => {
                break shard.hint("one sender has a share: --share 0/2 and 1/2 are for two")?;
            }
        }
    };
    let clock = Arc::new(SystemClock);
    let sender =
        Sender::new(shard, Arc::clone(&carrier), mail::sender(&settings.mail), clock).await?;
    let stop = AtomicBool::new(false);
    let work = async {
        match typed.daemon {
            true => stay(&sender, &spool, settings, &stop).await,
            false => empty(&sender, &stop).await,
        }
    };
    tokio::pin!(work);
    let (sent, early) = tokio::select! {
        sent = &mut work => (sent, false),
        told = told.as_mut() => {
            told?;
            // What is under way comes to its end; nothing new is begun.
            stop.store(true, Ordering::Release);
            (work.await, !typed.daemon)
        }
    };
    // Also after trouble: a server counts who leaves without a word.
    carrier.close().await;
    answer(&sent?, settings)?;
    Ok(if early { ExitCode::Interrupted } else { ExitCode::Good })
}

/// Until nothing is due.
pub async fn empty(sender: &Sender, stop: &AtomicBool) -> anyhow::Result<Sent> {
    let mut all = Sent::default();
    while !stop.load(Ordering::Acquire) {
        let round = sender.round(&|| stop.load(Ordering::Acquire)).await?;
        all += &round;
        if !did_something(&round) {
            break;
        }
    }
    Ok(all)
}

/// Until told to stop.
async fn stay(
    sender: &Sender,
    spool: &Spool,
    settings: &Settings,
    stop: &AtomicBool,
) -> anyhow::Result<Sent> {
    // Beside the sending: a round goes on for as long as mail comes.
    tokio::select! {
        sent = rounds(sender, stop) => sent,
        error = keep_up(spool, &settings.mail) => Err(error),
    }
}

async fn rounds(sender: &Sender, stop: &AtomicBool) -> anyhow::Result<Sent> {
    let (mut all, mut failures) = (Sent::default(), 0);
    while !stop.load(Ordering::Acquire) {
        match sender.round(&|| stop.load(Ordering::Acquire)).await {
            Ok(round) => {
                failures = 0;
                all += &round;
                if did_something(&round) {
                    continue;
                }
            }
            // A full disk may have room again.
            Err(error) if error.is_retryable() => {
                failures += 1;
                tracing::error!(after = ?rest(failures), "{:#}", anyhow::Error::from(error));
            }
            Err(error) => return Err(error.into()),
        }
        let stopped = async {
            while !stop.load(Ordering::Acquire) {
                tokio::time::sleep(LOOK / 10).await;
            }
        };
        let _ = timeout(rest(failures), stopped).await;
    }
    Ok(all)
}

/// How long nothing is done, after so many rounds on end that failed: each of them may have troubled the
/// mail server for nothing.
fn rest(failures: u32) -> Duration {
    match failures {
        0 => LOOK,
        _ => LONGEST.min(Duration::from_secs(1 << (failures - 1).min(6))),
    }
}

fn did_something(round: &Sent) -> bool {
    round.more || round.sent + round.again + round.failed + round.put_off > 0
}

/// Looks after the spool, now and then.
async fn keep_up(spool: &Spool, settings: &MailSettings) -> anyhow::Error {
    let mut upkeep = Upkeep { pruned: None, was: Health::Good };
    loop {
        let (spool, settings) = (spool.clone(), settings.clone());
        let look = spawn_blocking(move || {
            upkeep.look(&spool, &settings);
            upkeep
        });
        upkeep = match look.await {
            Ok(upkeep) => upkeep,
            Err(error) => return error.into(),
        };
        tokio::time::sleep(HEALTH).await;
    }
}

/// What is done now and then.
struct Upkeep {
    pruned: Option<Instant>,
    was: Health,
}

impl Upkeep {
    fn look(&mut self, spool: &Spool, settings: &MailSettings) {
        if let Ok(stats) = spool.stats(now()) {
            let health = stats.health(&settings.thresholds);
            let (due, late, failed) = (stats.due, stats.late(), stats.failed_lately);
            match health {
                Health::Critical => tracing::error!(due, ?late, failed, "mail is stuck"),
                Health::Warning => tracing::warn!(due, ?late, failed, "mail is late, or fails"),
                Health::Good if self.was != Health::Good => tracing::info!("mail is on time again"),
                Health::Good => {}
            }
            self.was = health;
        }
        if self.pruned.is_none_or(|last| last.elapsed() >= PRUNE) {
            self.pruned = Some(Instant::now());
            let pruned = spool.prune(settings.keep, now()).and_then(|pruned| {
                Ok(pruned.messages + spool.prune_failed(settings.keep_failed, now())?)
            });
            match pruned {
                Ok(messages) if messages > 0 => tracing::info!(messages, "pruned"),
                Ok(_) => {}
                Err(error) => tracing::warn!("{:#}", anyhow::Error::from(error)),
            }
        }
    }
}

fn answer(sent: &Sent, settings: &Settings) -> anyhow::Result<()> {
    let Sent { sent, again, failed, put_off, .. } = sent;
    let value =
        serde_json::json!({ "sent": sent, "again": again, "failed": failed, "put_off": put_off });
    settings.output.answer(&value, || {
        format!("{sent} sent, {again} to be tried again, {failed} failed, {put_off} put off")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_in_trouble_rests_longer_each_time_and_never_for_more_than_a_minute() {
        let rests: Vec<u64> = (1..9).map(|failures| rest(failures).as_secs()).collect();
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!((rest(0), rest(u32::MAX)), (LOOK, LONGEST));
    }
}
