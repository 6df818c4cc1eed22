//! `mail send`: the spool is emptied.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore::SystemClock;
use longshore_mail::send::{Sender, Sent};
use longshore_mail::spool::{Health, Spool, SpoolError};
use tokio::time::{Instant, timeout};

use super::now;
use crate::args::mail::Send;
use crate::commands::interrupted;
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::mail;
use crate::settings::Settings;

/// How soon a new message is seen.
const LOOK: Duration = Duration::from_millis(500);
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
    let sender = Sender::new(shard, carrier, mail::sender(&settings.mail), clock).await?;
    let stop = AtomicBool::new(false);
    let work = async {
        match typed.daemon {
            true => stay(&sender, &spool, settings, &stop).await,
            false => empty(&sender, &stop).await,
        }
    };
    tokio::pin!(work);
    let (sent, early) = tokio::select! {
        sent = &mut work => (sent?, false),
        told = told.as_mut() => {
            told?;
            // What is under way comes to its end; nothing new is begun.
            stop.store(true, Ordering::Release);
            (work.await?, !typed.daemon)
        }
    };
    answer(&sent, settings)?;
    Ok(if early { ExitCode::Interrupted } else { ExitCode::Good })
}

/// Until nothing is due.
async fn empty(sender: &Sender, stop: &AtomicBool) -> anyhow::Result<Sent> {
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
    let mut all = Sent::default();
    let mut upkeep = Upkeep { health: None, prune: None, was: Health::Good };
    while !stop.load(Ordering::Acquire) {
        upkeep.look(spool, settings);
        match sender.round(&|| stop.load(Ordering::Acquire)).await {
            Ok(round) => {
                all += &round;
                if did_something(&round) {
                    continue;
                }
            }
            // A full disk may have room again.
            Err(error) if error.is_retryable() => {
                tracing::error!("{:#}", anyhow::Error::from(error));
            }
            Err(error) => return Err(error.into()),
        }
        let stopped = async {
            while !stop.load(Ordering::Acquire) {
                tokio::time::sleep(LOOK / 10).await;
            }
        };
        let _ = timeout(LOOK, stopped).await;
    }
    Ok(all)
}

fn did_something(round: &Sent) -> bool {
    round.more || round.sent + round.again + round.failed + round.put_off > 0
}

/// What is done now and then.
struct Upkeep {
    health: Option<Instant>,
    prune: Option<Instant>,
    was: Health,
}

impl Upkeep {
    fn look(&mut self, spool: &Spool, settings: &Settings) {
        if is_time(&mut self.health, HEALTH)
            && let Ok(stats) = spool.stats(now())
        {
            let health = stats.health(&settings.mail.thresholds);
            match health {
                Health::Critical => {
                    tracing::error!(due = stats.due, oldest = ?stats.oldest_due, "mail is stuck");
                }
                Health::Warning => {
                    tracing::warn!(due = stats.due, oldest = ?stats.oldest_due, "mail is late");
                }
                Health::Good if self.was != Health::Good => tracing::info!("mail is on time again"),
                Health::Good => {}
            }
            self.was = health;
        }
        if is_time(&mut self.prune, PRUNE) {
            let pruned = spool.prune(settings.mail.keep, now()).and_then(|pruned| {
                Ok(pruned.messages + spool.prune_failed(settings.mail.keep_failed, now())?)
            });
            match pruned {
                Ok(messages) if messages > 0 => tracing::info!(messages, "pruned"),
                Ok(_) => {}
                Err(error) => tracing::warn!("{:#}", anyhow::Error::from(error)),
            }
        }
    }
}

fn is_time(last: &mut Option<Instant>, every: Duration) -> bool {
    let now = Instant::now();
    let due = last.is_none_or(|last| now.duration_since(last) >= every);
    if due {
        *last = Some(now);
    }
    due
}

fn answer(sent: &Sent, settings: &Settings) -> anyhow::Result<()> {
    let Sent { sent, again, failed, put_off, .. } = sent;
    let value =
        serde_json::json!({ "sent": sent, "again": again, "failed": failed, "put_off": put_off });
    settings.output.answer(&value, || {
        format!("{sent} sent, {again} to be tried again, {failed} failed, {put_off} put off")
    })
}
