//! `unit`: shows, retries and cancels units.

use std::time::Duration;

use longshore::duration::format_ago;
use longshore::store::{UnitAction, UnitActionResult, UnitFailure, UnitFilter, UnitSelection};
use longshore::unit::Weight;
use longshore::{Payload, Unit, UnitId};
use longshore_dispatch::request::UnitOperation;
use serde::Serialize;

use super::dispatch::units;
use super::names::{NameLookup, use_environment};
use super::{connect, now, submit};
use crate::args::unit_worker::{UnitCommand as Typed, UnitIdsArgs, UnitListArgs};
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// Bytes of a payload or result that are printed; `--json` has it all.
const MAX_SHOWN: usize = 2000;

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    match typed {
        Typed::Show { id, mut pool } => {
            use_environment(&mut pool, settings);
            let id = NameLookup::new(pool.dir.as_deref(), settings).unit(&id).await?;
            match pool.dir {
                Some(folder) => units::show(&folder, id, settings).await,
                None => show(id, settings).await,
            }
        }
        Typed::Explain { id, pool } => {
            let folder = settings.dispatch.folder(pool.dir.as_deref());
            let id = NameLookup::new(Some(&folder), settings).unit(&id).await?;
            units::explain(&folder, id, settings).await
        }
        Typed::List(mut list) => {
            use_environment(&mut list.pool, settings);
            if let Some(batch) = &mut list.batch {
                *batch = NameLookup::new(list.pool.dir.as_deref(), settings).batch(batch).await?;
            }
            match list.pool.dir.take() {
                Some(folder) => units::list(&folder, list, settings).await,
                None => self::list(list, settings).await,
            }
        }
        Typed::Wait { id, limit, mut pool } => {
            use_environment(&mut pool, settings);
            let id = NameLookup::new(pool.dir.as_deref(), settings).unit(&id).await?;
            let limit = limit.map(|span| span.0);
            match pool.dir {
                Some(folder) => units::wait(&folder, id, limit, settings).await,
                None => wait(id, limit, settings).await,
            }
        }
        Typed::Retry(units) => operate(units, UnitAction::Retry, settings).await,
        Typed::Cancel(units) => operate(units, UnitAction::Cancel, settings).await,
    }
}

async fn wait(id: UnitId, limit: Option<Duration>, settings: &Settings) -> anyhow::Result<ExitCode> {
    let (_, client) = connect(settings).await?;
    let ended = client.wait(id, limit).await;
    let unit = ended.hint(format!("it continues; `longshore unit show {id}` shows it"))?;
    submit::print_outcome(&unit, None, settings)
}

#[derive(Serialize)]
struct UnitJson<'a> {
    #[serde(flatten)]
    unit: &'a Unit,
    failures: &'a [UnitFailure],
}

async fn show(id: UnitId, settings: &Settings) -> anyhow::Result<ExitCode> {
    let (store, _) = connect(settings).await?;
    let unit = store.unit(&settings.scope(), id).await?;
    let failures = store.failures(&settings.scope(), id).await?;
    let shown = UnitJson { unit: &unit, failures: &failures };
    settings.output.record(&shown, || record(&unit, &failures))?;
    Ok(ExitCode::Good)
}

fn record(unit: &Unit, failures: &[UnitFailure]) -> Table {
    let now = now();
    let mut table = Table::record();
    table.field("unit", unit.id);
    table.field("state", unit.state);
    table.field("kind", &unit.kind);
    table.field("queue", &unit.queue);
    table.field("tenant", &unit.tenant);
    table.field("batch", unit.batch.as_ref().map_or("", |batch| batch.as_str()));
    table.field("priority", unit.priority);
    table.field("needs", needs(&unit.weight));
    table.field("attempt", unit.attempt);
    if unit.lost > 0 {
        table.field("lost", format!("{} times, with its worker", unit.lost));
    }
    table.field("key", unit.key.as_deref().unwrap_or_default());
    table.field("created", format_ago(unit.created_at, now));
    table.field("since", format_ago(unit.since, now));
    table.field("deadline", unit.deadline.map_or(String::new(), |time| format_ago(time, now)));
    table.field("worker", unit.session.map_or(String::new(), |session| session.to_string()));
    if unit.cancel_requested {
        table.field("cancel", "requested");
    }
    for failure in failures {
        let words = format!("{}: {}", format_ago(failure.at, now), failure.failure);
        table.field(&format!("attempt {}", failure.attempt), words);
    }
    table.field("payload", text(&unit.payload));
    table.field("checkpoint", unit.checkpoint.as_ref().map_or(String::new(), text));
    table.field("result", unit.result.as_ref().map_or(String::new(), text));
    table
}

/// What a unit occupies, unless that is one slot.
fn needs(weight: &Weight) -> String {
    if *weight == Weight::default() {
        return String::new();
    }
    let slots = std::iter::once(format!("{} slots", weight.slots)).filter(|_| weight.slots != 1);
    let resources = weight.resources.iter().map(|(name, amount)| format!("{amount} {name}"));
    slots.chain(resources).collect::<Vec<_>>().join(", ")
}

fn text(payload: &Payload) -> String {
    let bytes = payload.as_bytes();
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_SHOWN)]).into_owned();
    if bytes.len() <= MAX_SHOWN { shown } else { format!("{shown}… ({} bytes)", bytes.len()) }
}

/// A unit in a list, without its payload.
#[derive(Serialize)]
struct ListedUnit<'a> {
    unit: UnitId,
    state: longshore::UnitState,
    kind: &'a longshore::Kind,
    queue: &'a longshore::QueueName,
    tenant: &'a longshore::TenantId,
    batch: Option<&'a longshore::BatchId>,
    priority: longshore::Priority,
    attempt: u32,
    lost: u32,
    created_at: longshore::Timestamp,
    since: longshore::Timestamp,
    key: Option<&'a str>,
    failure: Option<&'a longshore::Failure>,
}

async fn list(typed: UnitListArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let UnitListArgs { state, queue, kind, batch, page, pool: _ } = typed;
    let filter = UnitFilter { state, queue, kind, batch };
    let (store, _) = connect(settings).await?;
    let scope = settings.scope();
    let found = store.units(&scope, &filter, page.after.as_deref(), page.limit).await?;
    let items: Vec<ListedUnit<'_>> = found.items.iter().map(listed).collect();
    settings.output.list(&items, || table(&items))?;
    if let Some(next) = found.next {
        settings.output.note(format!("more with --after {next}"));
    }
    Ok(ExitCode::Good)
}

fn listed(unit: &Unit) -> ListedUnit<'_> {
    ListedUnit {
        unit: unit.id,
        state: unit.state,
        kind: &unit.kind,
        queue: &unit.queue,
        tenant: &unit.tenant,
        batch: unit.batch.as_ref(),
        priority: unit.priority,
        attempt: unit.attempt,
        lost: unit.lost,
        created_at: unit.created_at,
        since: unit.since,
        key: unit.key.as_deref(),
        failure: unit.failure.as_ref(),
    }
}

fn table(units: &[ListedUnit<'_>]) -> Table {
    let [unit, state, kind, queue, batch] = ["unit", "state", "kind", "queue", "batch"].map(cell);
    let heading = [unit, state, kind, queue, batch, right("attempt"), cell("since"), cell("why")];
    let mut table = Table::new(heading, "no units");
    let now = now();
    for unit in units {
        table.row([
            cell(unit.unit),
            cell(unit.state),
            cell(unit.kind),
            cell(unit.queue),
            cell(unit.batch.map_or("", |batch| batch.as_str())),
            right(unit.attempt),
            cell(format_ago(unit.since, now)),
            cell(unit.failure.map_or(String::new(), short)),
        ]);
    }
    table
}

fn short(failure: &longshore::Failure) -> String {
    failure.to_string().chars().take(60).collect()
}

async fn operate(
    mut units: UnitIdsArgs,
    action: UnitAction,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let (deed, became) = match action {
        UnitAction::Cancel => (UnitOperation::Cancel, "cancelled"),
        _ => (UnitOperation::Retry, "ready again"),
    };
    use_environment(&mut units.pool, settings);
    let ids = NameLookup::new(units.pool.dir.as_deref(), settings).units(&units.ids).await?;
    if let Some(folder) = &units.pool.dir {
        return units::operate(folder, ids, deed, settings).await;
    }
    let (store, _) = connect(settings).await?;
    let selection = UnitSelection::Ids(ids);
    let done = store.apply_unit_action(&settings.scope(), selection, action).await?;
    settings.output.answer(&done, || operation_text(&done, became))?;
    let nothing = done.changed + done.requested == 0;
    Ok(if nothing { ExitCode::Error } else { ExitCode::Good })
}

/// The result of an operation, as text.
pub fn operation_text(done: &UnitActionResult, became: &str) -> String {
    let mut words = format!("{} {became}", done.changed);
    if done.requested > 0 {
        words.push_str(&format!(", {} running asked to stop", done.requested));
    }
    if done.skipped > 0 {
        words.push_str(&format!(", {} left as they were: their state does not allow it", done.skipped));
    }
    words
}
