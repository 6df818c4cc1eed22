//! `mail send`: sends the messages of the spool.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore::{AlertSink, ServiceAlert, SystemClock, exponential_delay};
use longshore_mail::send::{SendReport, Sender};
use longshore_mail::spool::{Spool, SpoolError, SpoolHealth};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::now;
use crate::alert_sinks::AlertSinks;
use crate::args::mail::MailSendArgs;
use crate::commands::shutdown_signal;
use crate::config::MailConfig;
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::mail;
use crate::settings::Settings;

/// Interval between two scans of the spool.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum delay after an error of the spool.
const MAX_DELAY: Duration = Duration::from_secs(60);
/// Interval between two health checks of the spool.
const HEALTH_INTERVAL: Duration = Duration::from_secs(60);
/// Interval between two prunings.
const PRUNE_INTERVAL: Duration = Duration::from_secs(3600);

/// Runs the command.
pub async fn run(typed: MailSendArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let spool = mail::spool(&settings.mail)?;
    let transport = mail::transport(typed.folder.as_deref(), &settings.mail)?;
    let mut signal = std::pin::pin!(shutdown_signal());
    let shard = loop {
        match spool.shard(typed.share) {
            // The sender that this one replaces stops only when this one is up.
            Err(error @ SpoolError::Locked { .. }) if typed.daemon => {
                tracing::info!("{error}: waiting");
                tokio::select! {
                    signal = signal.as_mut() => return signal.map(|()| ExitCode::Good),
                    () = tokio::time::sleep(SCAN_INTERVAL) => {}
                }
            }
            shard => {
                break shard.hint("each sender needs its own share: --share 0/2 and --share 1/2 for two")?;
            }
        }
    };
    let (clock, alerts) = (Arc::new(SystemClock), AlertSinks::open(&settings.alerts)?);
    let sender =
        Sender::new(shard, Arc::clone(&transport), mail::sender_settings(&settings.mail), clock).await?;
    let stop = AtomicBool::new(false);
    let work = async {
        match typed.daemon {
            true => run_daemon(&sender, &spool, settings, &stop, &*alerts).await,
            false => send_due(&sender, &stop).await,
        }
    };
    tokio::pin!(work);
    let (sent, early) = tokio::select! {
        sent = &mut work => (sent, false),
        signal = signal.as_mut() => {
            signal?;
            // Messages under way are finished; no new ones are begun.
            stop.store(true, Ordering::Release);
            (work.await, !typed.daemon)
        }
    };
    // Also after an error: mail servers count clients that disconnect without QUIT.
    transport.close().await;
    answer(&sent?, settings)?;
    Ok(if early { ExitCode::Interrupted } else { ExitCode::Good })
}

/// Sends until nothing is due.
pub async fn send_due(sender: &Sender, stop: &AtomicBool) -> anyhow::Result<SendReport> {
    let mut all = SendReport::default();
    while !stop.load(Ordering::Acquire) {
        let round = sender.round(&|| stop.load(Ordering::Acquire)).await?;
        all += &round;
        if !made_progress(&round) {
            break;
        }
    }
    Ok(all)
}

/// Sends until told to stop.
async fn run_daemon(
    sender: &Sender,
    spool: &Spool,
    settings: &Settings,
    stop: &AtomicBool,
    alerts: &dyn AlertSink,
) -> anyhow::Result<SendReport> {
    // Maintenance runs concurrently: a round lasts for as long as mail arrives.
    tokio::select! {
        sent = send_rounds(sender, stop, alerts) => sent,
        error = maintain(spool, &settings.mail) => Err(error),
    }
}

async fn send_rounds(
    sender: &Sender,
    stop: &AtomicBool,
    alerts: &dyn AlertSink,
) -> anyhow::Result<SendReport> {
    let (mut all, mut failures, mut server) = (SendReport::default(), 0, ServerWatch::default());
    while !stop.load(Ordering::Acquire) {
        match sender.round(&|| stop.load(Ordering::Acquire)).await {
            Ok(round) => {
                failures = 0;
                all += &round;
                server.observe(&round, alerts).await;
                if made_progress(&round) {
                    continue;
                }
            }
            // A full disk may have space again.
            Err(error) if error.is_retryable() => {
                failures += 1;
                tracing::error!(after = ?delay_after(failures), "{:#}", anyhow::Error::from(error));
            }
            Err(error) => return Err(error.into()),
        }
        let stopped = async {
            while !stop.load(Ordering::Acquire) {
                tokio::time::sleep(SCAN_INTERVAL / 10).await;
            }
        };
        let _ = timeout(delay_after(failures), stopped).await;
    }
    Ok(all)
}

/// The delay after so many failed rounds in a row: each of them may have loaded the mail server for
/// nothing.
fn delay_after(failures: u32) -> Duration {
    match failures {
        0 => SCAN_INTERVAL,
        _ => exponential_delay(Duration::from_secs(1), MAX_DELAY, failures - 1),
    }
}

fn made_progress(round: &SendReport) -> bool {
    round.more || round.sent + round.retried + round.failed + round.put_off > 0
}

/// Notices that the mail server accepts nothing.
#[derive(Default)]
struct ServerWatch {
    is_away: bool,
}

impl ServerWatch {
    /// Raises an alert after the first round in which every message was deferred. The log has each message's reason.
    async fn observe(&mut self, round: &SendReport, alerts: &dyn AlertSink) {
        if round.sent > 0 && std::mem::take(&mut self.is_away) {
            tracing::info!("the mail server accepts messages again");
        } else if round.sent == 0 && round.retried > 0 && !self.is_away {
            self.is_away = true;
            let message = format!("the mail server accepted none of {} messages; retrying", round.retried);
            alerts.send_service_alert(&ServiceAlert { service: "mail", message }).await;
        }
    }
}

/// Maintains the spool at intervals.
async fn maintain(spool: &Spool, settings: &MailConfig) -> anyhow::Error {
    let mut maintenance = SpoolMaintenance { pruned: None, was: SpoolHealth::Good };
    loop {
        let (spool, settings) = (spool.clone(), settings.clone());
        let look = spawn_blocking(move || {
            maintenance.run_once(&spool, &settings);
            maintenance
        });
        maintenance = match look.await {
            Ok(maintenance) => maintenance,
            Err(error) => return error.into(),
        };
        tokio::time::sleep(HEALTH_INTERVAL).await;
    }
}

/// State of the maintenance.
struct SpoolMaintenance {
    pruned: Option<Instant>,
    was: SpoolHealth,
}

impl SpoolMaintenance {
    fn run_once(&mut self, spool: &Spool, settings: &MailConfig) {
        if let Ok(stats) = spool.stats(now()) {
            let health = stats.health(&settings.thresholds());
            let (due, late, failed) = (stats.due, stats.late(), stats.failed_lately);
            match health {
                SpoolHealth::Critical => tracing::error!(due, ?late, failed, "mail is stuck"),
                SpoolHealth::Warning => {
                    tracing::warn!(due, ?late, failed, "mail is late, or failing");
                }
                SpoolHealth::Good if self.was != SpoolHealth::Good => {
                    tracing::info!("mail is on time again");
                }
                SpoolHealth::Good => {}
            }
            self.was = health;
        }
        if self.pruned.is_none_or(|last| last.elapsed() >= PRUNE_INTERVAL) {
            self.pruned = Some(Instant::now());
            let pruned = spool
                .prune(settings.keep, now())
                .and_then(|pruned| Ok(pruned.messages + spool.prune_failed(settings.keep_failed, now())?));
            match pruned {
                Ok(messages) if messages > 0 => tracing::info!(messages, "pruned"),
                Ok(_) => {}
                Err(error) => tracing::warn!("{:#}", anyhow::Error::from(error)),
            }
        }
    }
}

fn answer(sent: &SendReport, settings: &Settings) -> anyhow::Result<()> {
    let SendReport { sent, retried: again, failed, put_off, .. } = sent;
    let value = serde_json::json!({ "sent": sent, "again": again, "failed": failed, "put_off": put_off });
    settings
        .output
        .answer(&value, || format!("{sent} sent, {again} to be retried, {failed} failed, {put_off} put off"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_in_trouble_rests_longer_each_time_and_never_for_more_than_a_minute() {
        let rests: Vec<u64> = (1..9).map(|failures| delay_after(failures).as_secs()).collect();
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!((delay_after(0), delay_after(u32::MAX)), (SCAN_INTERVAL, MAX_DELAY));
    }
}
