//! Sums of calls by day, tenant, model, batch or profile, and in total.

use longshore::accounts::Usage;
use serde::Serialize;

use super::csv;
use crate::amount_args;
use crate::args::usage::{UsageArgs as Typed, UsageGrouping};
use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// Prints sums.
pub fn show(sums: &[Usage], typed: &Typed, settings: &Settings) -> anyhow::Result<()> {
    let total = total(sums);
    if typed.csv {
        return print_csv(sums, typed.by, settings);
    }
    let shown = UsageJson {
        by: typed.by.heading(),
        groups: sums.iter().map(UsageRow::of).collect(),
        total: UsageRow::of(&total),
    };
    settings.output.record(&shown, || table(sums, &total, typed.by))
}

/// Sums as JSON.
#[derive(Serialize)]
struct UsageJson<'a> {
    by: &'static str,
    groups: Vec<UsageRow<'a>>,
    total: UsageRow<'a>,
}

/// A group with its cost as text, which no JSON parser rounds.
#[derive(Serialize)]
struct UsageRow<'a> {
    #[serde(flatten)]
    usage: &'a Usage,
    cost_usd: String,
}

impl<'a> UsageRow<'a> {
    fn of(usage: &'a Usage) -> Self {
        Self { usage, cost_usd: amount_args::format_plain(usage.cost_picos) }
    }
}

fn total(sums: &[Usage]) -> Usage {
    let start = Usage { name: "total".to_owned(), ..Usage::default() };
    sums.iter().fold(start, |sum, one| Usage {
        name: sum.name,
        calls: sum.calls + one.calls,
        open: sum.open + one.open,
        errors: sum.errors + one.errors,
        maybe_billed: sum.maybe_billed + one.maybe_billed,
        estimated: sum.estimated + one.estimated,
        tokens_in: sum.tokens_in.saturating_add(one.tokens_in),
        tokens_out: sum.tokens_out.saturating_add(one.tokens_out),
        tokens_cached: sum.tokens_cached.saturating_add(one.tokens_cached),
        cost_picos: sum.cost_picos.saturating_add(one.cost_picos),
    })
}

fn table(sums: &[Usage], total: &Usage, by: UsageGrouping) -> Table {
    let [calls, open, errors, maybe] = ["calls", "open", "errors", "maybe billed"].map(right);
    let [tin, tout, cached, cost] = ["tokens in", "out", "cached", "cost"].map(right);
    let heading = [cell(by.heading()), calls, open, errors, maybe, tin, tout, cached, cost];
    let mut table = Table::new(heading, "no calls");
    if sums.is_empty() {
        return table;
    }
    for usage in sums.iter().chain([total]) {
        table.row([
            cell(if usage.name.is_empty() { "(none)" } else { &usage.name }),
            right(usage.calls),
            right(usage.open),
            right(usage.errors),
            right(usage.maybe_billed),
            right(usage.tokens_in),
            right(usage.tokens_out),
            right(usage.tokens_cached),
            right(amount_args::format_usd(usage.cost_picos)),
        ]);
    }
    table
}

/// Without the total: the reader of a CSV file adds up itself.
fn print_csv(sums: &[Usage], by: UsageGrouping, settings: &Settings) -> anyhow::Result<()> {
    let heading = [
        by.heading(),
        "calls",
        "open",
        "errors",
        "maybe_billed",
        "estimated",
        "tokens_in",
        "tokens_out",
        "tokens_cached",
        "cost_usd",
    ];
    settings.output.line(csv::line(heading.map(str::to_owned)))?;
    for usage in sums {
        settings.output.line(csv::line([
            usage.name.clone(),
            usage.calls.to_string(),
            usage.open.to_string(),
            usage.errors.to_string(),
            usage.maybe_billed.to_string(),
            usage.estimated.to_string(),
            usage.tokens_in.to_string(),
            usage.tokens_out.to_string(),
            usage.tokens_cached.to_string(),
            amount_args::format_plain(usage.cost_picos),
        ]))?;
    }
    Ok(())
}
