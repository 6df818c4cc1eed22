//! The live view: when a frame is drawn, and what keys do. What one looks like is decided in `view`.

use std::time::Duration;

use longshore::batch::BatchAction;
use longshore::store::QueueChange;
use longshore::{BatchStatus, Permits, QueueName, Store};
use tokio::time::Instant;

use super::choice::Choice;
use super::figures::{Figures, Past};
use super::list::List;
use super::look;
use super::view::View;
use crate::args::top::Top as Typed;
use crate::commands::now;
use crate::exit::ExitCode;
use crate::screen::{Key, Screen};
use crate::settings::Settings;

/// Rates that are kept for the chart: as many as the widest terminal has columns.
const RATES: usize = 500;

/// Draws one frame after the other until `q` or Ctrl-C.
pub(super) async fn run(
    typed: &Typed,
    (store, permits): (&dyn Store, &dyn Permits),
    (mut past, mut figures): (Past, Figures),
    mut screen: Screen,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let (began, mut choice, mut word) = (Instant::now(), Choice::default(), String::new());
    let (mut rates, mut help) = (Vec::new(), false);
    loop {
        choice.keep_within(&figures);
        let view = View { figures: &figures, choice, rates: &rates, word: &word, help, now: now() };
        screen.draw(|frame| view.draw(frame))?;
        let every = typed.every.0.max(Duration::from_millis(100));
        let key = tokio::select! {
            () = tokio::time::sleep(every) => Key::Other,
            key = screen.key() => key,
        };
        match key {
            Key::Quit => return Ok(ExitCode::Good),
            Key::Help => help = !help,
            Key::Next => choice.next(),
            Key::Previous => choice.previous(),
            Key::Up => choice.up(),
            Key::Down => choice.down(),
            Key::Pause => {
                let paused = pause(&figures, choice, store, settings).await;
                word = paused.unwrap_or_else(|error| format!("{error:#}"));
            }
            Key::Other => {}
        }
        match look(store, permits, settings).await {
            Ok(seen) => {
                figures = past.add(seen, began.elapsed());
                // Keys make a frame, too, but no time.
                if key == Key::Other {
                    note(&mut rates, figures.per_second);
                }
            }
            Err(error) => word = format!("the store does not answer: {error:#}"),
        }
    }
}

/// Keeps a rate for the chart.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is only drawn")]
fn note(rates: &mut Vec<u64>, rate: f64) {
    if rates.len() >= RATES {
        rates.remove(0);
    }
    // In tenths: slow work shows, too.
    rates.push((rate * 10.0) as u64);
}

/// Pauses what is chosen, or lets it go on. Returns what was done, in words.
async fn pause(
    figures: &Figures,
    choice: Choice,
    store: &dyn Store,
    settings: &Settings,
) -> anyhow::Result<String> {
    let scope = settings.scope();
    match choice.list {
        List::Queues => {
            let Some(queue) = figures.queues.get(choice.row) else { return Ok(String::new()) };
            let change = QueueChange { paused: Some(!queue.paused), ..QueueChange::default() };
            store.change_queue(&scope, &QueueName::new(&queue.queue)?, change).await?;
            let is = if queue.paused { "open" } else { "paused" };
            Ok(format!("queue {} is {is}", queue.queue))
        }
        List::Batches => {
            let Some(batch) = figures.batches.get(choice.row) else { return Ok(String::new()) };
            let action = match batch.status {
                BatchStatus::Paused => BatchAction::Resume,
                _ => BatchAction::Pause { reason: "by `longshore top`".into() },
            };
            let after = store.operate_batch(&scope, &batch.id, action).await?;
            Ok(format!("batch {} is {}", after.id, after.status))
        }
        List::Workers | List::Pools => Ok("queues and batches can be paused".to_owned()),
    }
}
