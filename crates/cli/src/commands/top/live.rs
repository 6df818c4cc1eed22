//! The live view: draws frames and handles keys. `tui_view` renders them.

use std::time::Duration;

use longshore::batch::BatchAction;
use longshore::store::QueueChange;
use longshore::{BatchStatus, Permits, QueueName, Store};
use tokio::time::Instant;

use super::list::ListKind;
use super::load;
use super::selection::RowSelection;
use super::stats::{StatsWindow, TopStats};
use super::tui_view::TuiView;
use crate::args::top::TopArgs as Typed;
use crate::commands::now;
use crate::exit::ExitCode;
use crate::settings::Settings;
use crate::terminal::{KeyAction, Screen};

/// Rates kept for the chart: as many as the widest terminal has columns.
const MAX_RATES: usize = 500;

/// Draws one frame after the other until `q` or Ctrl-C.
pub(super) async fn run(
    typed: &Typed,
    (store, permits): (&dyn Store, &dyn Permits),
    (mut window, mut stats): (StatsWindow, TopStats),
    mut screen: Screen,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let (began, mut selection, mut message) = (Instant::now(), RowSelection::default(), String::new());
    let (mut rates, mut help) = (Vec::new(), false);
    loop {
        selection.keep_within(&stats);
        let view = TuiView { stats: &stats, selection, rates: &rates, message: &message, help, now: now() };
        screen.draw(|frame| view.draw(frame))?;
        let every = typed.every.0.max(Duration::from_millis(100));
        let key = tokio::select! {
            () = tokio::time::sleep(every) => KeyAction::Other,
            key = screen.key() => key,
        };
        match key {
            KeyAction::Quit => return Ok(ExitCode::Good),
            KeyAction::Help => help = !help,
            KeyAction::Next => selection.next(),
            KeyAction::Previous => selection.previous(),
            KeyAction::Up => selection.up(),
            KeyAction::Down => selection.down(),
            KeyAction::Pause => {
                let paused = pause(&stats, selection, store, settings).await;
                message = paused.unwrap_or_else(|error| format!("{error:#}"));
            }
            KeyAction::Other => {}
        }
        match load(store, permits, settings).await {
            Ok(snapshot) => {
                stats = window.add(snapshot, began.elapsed());
                // A key redraws the frame, but no interval has passed.
                if key == KeyAction::Other {
                    note(&mut rates, stats.per_second);
                }
            }
            Err(error) => message = format!("the store does not answer: {error:#}"),
        }
    }
}

/// Adds a rate to the chart.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is only drawn")]
fn note(rates: &mut Vec<u64>, rate: f64) {
    if rates.len() >= MAX_RATES {
        rates.remove(0);
    }
    // In tenths, so that slow work shows too.
    rates.push((rate * 10.0) as u64);
}

/// Pauses or resumes the selected queue or batch. Returns what was done, as text.
async fn pause(
    stats: &TopStats,
    selection: RowSelection,
    store: &dyn Store,
    settings: &Settings,
) -> anyhow::Result<String> {
    let scope = settings.scope();
    match selection.list {
        ListKind::Queues => {
            let Some(queue) = stats.queues.get(selection.row) else { return Ok(String::new()) };
            let change = QueueChange { paused: Some(!queue.paused), ..QueueChange::default() };
            store.change_queue(&scope, &QueueName::new(&queue.queue)?, change).await?;
            let is = if queue.paused { "open" } else { "paused" };
            Ok(format!("queue {} is {is}", queue.queue))
        }
        ListKind::Batches => {
            let Some(batch) = stats.batches.get(selection.row) else { return Ok(String::new()) };
            let action = match batch.status {
                BatchStatus::Paused => BatchAction::Resume,
                _ => BatchAction::Pause { reason: "by `longshore top`".into() },
            };
            let after = store.apply_batch_action(&scope, &batch.id, action).await?;
            Ok(format!("batch {} is {}", after.id, after.status))
        }
        ListKind::Workers | ListKind::Pools => Ok("queues and batches can be paused".to_owned()),
    }
}
