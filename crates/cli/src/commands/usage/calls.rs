//! Lists calls, newest first.

use longshore::accounts::{Call, CallEnd, Ledger, UsageFilter};
use serde::Serialize;

use super::csv;
use crate::amount_args;
use crate::args::usage::UsageArgs as Typed;
use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// Lists calls.
pub async fn run(
    ledger: &dyn Ledger,
    filter: &UsageFilter,
    typed: &Typed,
    settings: &Settings,
) -> anyhow::Result<()> {
    let page = &typed.page;
    let found = ledger.calls(&settings.scope(), filter, page.after.as_deref(), page.limit).await?;
    if typed.csv {
        print_csv(&found.items, settings)?;
    } else {
        let rows: Vec<CallRow<'_>> = found.items.iter().map(CallRow::of).collect();
        settings.output.list(&rows, || table(&found.items))?;
    }
    if let Some(next) = found.next {
        settings.output.note(format!("there are more: --after {next}"));
    }
    Ok(())
}

/// A call with its cost as text, which no JSON parser rounds.
#[derive(Serialize)]
struct CallRow<'a> {
    #[serde(flatten)]
    call: &'a Call,
    cost_picos: i64,
    cost_usd: String,
}

impl<'a> CallRow<'a> {
    fn of(call: &'a Call) -> Self {
        let cost_picos = end(call).cost_picos;
        Self { call, cost_picos, cost_usd: amount_args::format_plain(cost_picos) }
    }
}

/// The model that answered, or else the requested one.
fn model_of(call: &Call) -> &str {
    let answered = call.end.as_ref().map(|end| end.model.as_str());
    answered.filter(|model| !model.is_empty()).unwrap_or(&call.call.model)
}

/// The result of a call; zeros while it is open.
fn end(call: &Call) -> CallEnd {
    call.end.clone().unwrap_or_else(|| CallEnd::new(call.status, call.call.model.clone()))
}

fn table(calls: &[Call]) -> Table {
    let heading = ["when", "tenant", "profile", "model", "status"].map(cell);
    let [when, tenant, profile, model, status] = heading;
    let [tin, tout, ms, tries, cost] = ["in", "out", "ms", "tries", "cost"].map(right);
    let heading = [when, tenant, profile, model, status, tin, tout, ms, tries, cost, cell("request")];
    let mut table = Table::new(heading, "no calls");
    for call in calls {
        let end = end(call);
        let code = end.code.as_ref().map_or(String::new(), |code| format!(" {code}"));
        let about = if end.estimated { "~" } else { "" };
        table.row([
            cell(call.opened_at),
            cell(&call.call.tenant),
            cell(&call.call.profile),
            cell(model_of(call)),
            cell(format!("{}{code}", call.status.as_str())),
            right(format!("{about}{}", end.tokens_in)),
            right(format!("{about}{}", end.tokens_out)),
            right(end.latency_ms),
            right(end.attempts),
            right(amount_args::format_usd(end.cost_picos)),
            cell(&call.call.request_id),
        ]);
    }
    table
}

fn print_csv(calls: &[Call], settings: &Settings) -> anyhow::Result<()> {
    let heading = [
        "opened_at",
        "logged_at",
        "request_id",
        "call",
        "tenant",
        "profile",
        "provider",
        "model",
        "status",
        "code",
        "tokens_in",
        "tokens_out",
        "tokens_cached",
        "tokens_cache_write",
        "latency_ms",
        "attempts",
        "estimated",
        "batch",
        "unit",
        "worker",
        "cost_usd",
    ];
    settings.output.line(csv::line(heading.map(str::to_owned)))?;
    for call in calls {
        let (new, end) = (&call.call, end(call));
        settings.output.line(csv::line([
            call.opened_at.to_string(),
            call.logged_at.map_or(String::new(), |time| time.to_string()),
            new.request_id.clone(),
            new.id.to_string(),
            new.tenant.to_string(),
            new.profile.to_string(),
            new.provider.clone(),
            model_of(call).to_owned(),
            call.status.as_str().to_owned(),
            end.code.unwrap_or_default(),
            end.tokens_in.to_string(),
            end.tokens_out.to_string(),
            end.tokens_cached.to_string(),
            end.tokens_cache_write.to_string(),
            end.latency_ms.to_string(),
            end.attempts.to_string(),
            end.estimated.to_string(),
            new.batch.as_ref().map_or(String::new(), ToString::to_string),
            new.unit.map_or(String::new(), |unit| unit.to_string()),
            new.worker.clone(),
            amount_args::format_plain(end.cost_picos),
        ]))?;
    }
    Ok(())
}
