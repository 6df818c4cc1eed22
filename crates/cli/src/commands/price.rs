//! `price`: the price table, for profiles that state no prices. One ships with the binary; `price
//! update` stores a newer one for all tenants.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use longshore::accounts::{Ledger, PutProfile};
use longshore::{ProfileName, Scope, TenantId, Timestamp};
use longshore_ai::{PRICE_TABLE, Price, PriceTable, Prices, ProviderName};
use serde::Serialize;
use serde_json::json;

use super::{ledger, now};
use crate::args::price::PriceCommand as Typed;
use crate::audit;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    let ledger = ledger(settings).await?;
    match typed {
        Typed::List => list(&*ledger, settings).await?,
        Typed::Update { file } => update(&*ledger, &file, settings).await?,
    }
    Ok(ExitCode::Good)
}

/// A model of the table.
#[derive(Serialize)]
struct PricedModel<'a> {
    provider: ProviderName,
    model: &'a str,
    #[serde(flatten)]
    prices: &'a Prices,
    date: &'a str,
}

async fn list(ledger: &dyn Ledger, settings: &Settings) -> anyhow::Result<()> {
    let table = PriceTable::load(ledger).await?;
    let date = &table.date;
    let priced = |(provider, model, prices)| PricedModel { provider, model, prices, date };
    let models: Vec<_> = models(&table).map(priced).collect();
    settings.output.list(&models, || rows(&models))?;
    let sources: Vec<_> = table.sources.values().map(String::as_str).collect();
    settings.output.note(format!("of {}, from {}", table.date, sources.join(", ")));
    if let Some(warning) = old_table(&table, now()) {
        settings.output.note(format!("warning: {warning}"));
    }
    Ok(())
}

fn rows(models: &[PricedModel<'_>]) -> Table {
    let [input, output, read, write, batch] = ["in", "out", "cache read", "cache write", "batch"].map(right);
    let heading =
        [cell("provider"), cell("model"), input, output, read, write, batch, cell("long questions")];
    let mut table = Table::new(heading, "the price table is empty");
    for PricedModel { provider, model, prices, .. } in models {
        let rate = prices.default_rate();
        let price = |price: Option<Price>| right(price.map_or(String::new(), |price| price.to_string()));
        let tiers = rate.tiers.iter().filter_map(|tier| {
            let (above, input, output) = (tier.above?, tier.input?, tier.output?);
            Some(format!("{input} in, {output} out above {above} tokens"))
        });
        table.row([
            cell(provider),
            cell(model),
            price(Some(rate.input)),
            price(Some(rate.output)),
            price(rate.cache_read),
            price(rate.cache_write),
            right(rate.batch.map_or(String::new(), |share| format!("× {}", Price::from(share)))),
            cell(tiers.collect::<Vec<_>>().join("; ")),
        ]);
    }
    table
}

async fn update(ledger: &dyn Ledger, file: &Path, settings: &Settings) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file);
    let text = text.with_context(|| format!("cannot read {}", file.display()));
    let text = text.hint("FILE is a price table as TOML: `longshore price update --help` shows one")?;
    let new = PriceTable::parse(&text).map_err(|error| usage(format!("{}: {error}", file.display())));
    let new = new.hint("`longshore price update --help` shows what a price table has")?;
    // Tomorrow: the day has begun there where the file was made.
    let tomorrow = (now() + Duration::from_secs(24 * 3600)).to_string();
    if new.date.as_str() > &tomorrow[..10] {
        let message = format!("{} is of {}, which is in the future", file.display(), new.date);
        return Err(usage(message))
            .hint("`date` is the day of its prices; later tables would be refused as older ones");
    }
    let current = PriceTable::load(ledger).await?;
    if new.date < current.date {
        let message = format!("{} is of {}, the table in use of {}", file.display(), new.date, current.date);
        return Err(usage(message))
            .hint("an older table would change nothing; `date` is the day of its prices");
    }
    let changed = changes(&current, &new);
    let (tenant, name) = (TenantId::default(), ProfileName::new(PRICE_TABLE)?);
    audit::record(ledger, "price.update", None, &new.date).await?;
    let stored = match PriceTable::stored(ledger).await? {
        Some(stored) => stored.merged(new.clone()),
        None => new.clone(),
    };
    let body = Some(serde_json::to_value(stored)?);
    let put = PutProfile { tenant, name, body, suspended: None, expected: None };
    ledger.put_profile(&Scope::All, put).await?;
    let answer = json!({ "date": new.date, "models": models(&new).count(), "changed": changed });
    settings.output.answer(&answer, || {
        format!(
            "the price table is of {} now: {} models, {changed} of them new or changed",
            new.date,
            models(&new).count()
        )
    })
}

/// The models of a table, with their prices.
fn models(table: &PriceTable) -> impl Iterator<Item = (ProviderName, &str, &Prices)> {
    let all = table.models.iter();
    all.flat_map(|(provider, models)| {
        models.iter().map(|(model, prices)| (*provider, model.as_str(), prices))
    })
}

/// How many models of a new table are not in the current one, or have other prices there.
fn changes(current: &PriceTable, new: &PriceTable) -> usize {
    models(new).filter(|(provider, model, prices)| current.prices(*provider, model) != Some(*prices)).count()
}

/// The warning of a table that is so old that its prices should be checked.
pub fn old_table(table: &PriceTable, now: Timestamp) -> Option<String> {
    let days = table.old_age(now)?.as_secs() / (24 * 3600);
    let date = &table.date;
    Some(format!("the price table is of {date}, {days} days old: `longshore price update FILE` replaces it"))
}
