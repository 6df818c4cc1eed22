//! Prints profiles as tables and records. They hold no secrets: a key is a reference.

use longshore::accounts::ProfileRecord;
use longshore_ai::{DatedRate, PriceTable, Prices, Profile, Rate};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// Profiles in a table; `sheets` are the tenants' settings, which name the defaults.
pub fn table(profiles: &[ProfileRecord], sheets: &[ProfileRecord]) -> Table {
    let [rpm, tpm, at_once] = ["rpm", "tpm", "in flight"].map(right);
    let heading = ["tenant", "profile", "state", "provider", "model", "key"].map(cell);
    let [tenant, profile, state, provider, model, key] = heading;
    let heading = [tenant, profile, state, provider, model, key, rpm, tpm, at_once];
    let empty = "no profiles; `longshore profile add NAME --provider P --model M` adds one";
    let mut table = Table::new(heading, empty);
    for record in profiles {
        let (body, limits) = (&record.body, &record.body["limits"]);
        table.row([
            cell(&record.tenant),
            cell(&record.name),
            cell(state_of(record, sheets)),
            cell(text(&body["provider"])),
            cell(text(&body["model"])),
            cell(text(&body["key"])),
            right(text(&limits["requests"])),
            right(text(&limits["tokens"])),
            right(text(&limits["in_flight"])),
        ]);
    }
    table
}

fn state_of(record: &ProfileRecord, sheets: &[ProfileRecord]) -> &'static str {
    let sheet = sheets.iter().find(|sheet| sheet.tenant == record.tenant);
    let default = sheet.and_then(|sheet| sheet.body["default"].as_str());
    match record {
        record if record.suspended => "suspended",
        record if record.body["template"] == Value::Bool(true) => "template",
        record if default == Some(record.name.as_str()) => "default",
        _ => "open",
    }
}

/// A profile as stored, and its complete document.
#[derive(Serialize)]
struct ProfileJson<'a> {
    #[serde(flatten)]
    record: &'a ProfileRecord,
    whole: &'a Value,
}

/// Prints one profile. Inherited fields are shown as its own, except the template's keys.
pub fn one(
    record: &ProfileRecord,
    whole: &Value,
    known: &PriceTable,
    settings: &Settings,
) -> anyhow::Result<()> {
    let mut whole = whole.clone();
    let is_lent = |part: &str| record.body[part].is_null() && !whole[part].is_null();
    let (lent, lent_proxy_key) = (is_lent("key"), is_lent("proxy_key"));
    for (part, _) in [("key", lent), ("proxy_key", lent_proxy_key)].into_iter().filter(|(_, lent)| *lent) {
        whole.as_object_mut().map(|whole| whole.remove(part));
    }
    let shown = ProfileJson { record, whole: &whole };
    settings.output.record(&shown, || sheet(record, &whole, known, lent))
}

fn sheet(record: &ProfileRecord, whole: &Value, known: &PriceTable, lent: bool) -> Table {
    let mut table = Table::record();
    table.field("profile", &record.name);
    table.field("tenant", &record.tenant);
    table.field("state", state_of(record, &[]));
    table.field("extends", text(&record.body["extends"]));
    for part in ["provider", "model", "endpoint"] {
        table.field(part, text(&whole[part]));
    }
    table.field("key", if lent { "its template's".to_owned() } else { text(&whole["key"]) });
    for (part, name) in [("proxy", "proxy"), ("proxy_key", "proxy key")] {
        table.field(name, text(&whole[part]));
    }
    let certificates = whole["ca"].as_str().map_or(0, |pem| pem.matches("BEGIN CERTIFICATE").count());
    if certificates > 0 {
        table.field("trusts", format!("{certificates} certificate authorities of its own"));
    }
    for (part, name) in [("max_tokens", "max tokens"), ("temperature", "temperature"), ("system", "system")] {
        table.field(name, text(&whole[part]));
    }
    models(&mut table, record, whole, known);
    limits(&mut table, &whole["limits"]);
    for (part, name) in
        [("attempts", "attempts"), ("base", "retry base (s)"), ("idle_timeout", "idle timeout (s)")]
    {
        table.field(name, text(&whole["retry"][part]));
    }
    let fallback = whole["fallback"].as_array().into_iter().flatten();
    table.field("fallback", fallback.map(text).collect::<Vec<_>>().join(", "));
    table.field("pool", text(&whole["pool"]));
    table.field("wire", text(&whole["wire"]));
    table.field("since", record.created_at);
    table.field("changed", record.updated_at);
    table.field("revision", record.revision);
    table
}

/// The prices of its model and of its further models: stated, or known of a paid provider's model.
fn models(table: &mut Table, record: &ProfileRecord, whole: &Value, known: &PriceTable) {
    let provider = super::check::read(&record.name, whole, true).ok();
    let provider = provider.filter(Profile::is_billed).map(|profile| profile.provider);
    let mut prices = |name: &str, model: &str, written: &Value| {
        let stated = Prices::deserialize(written).ok().filter(Prices::is_stated);
        let by_table = provider.and_then(|provider| known.prices(provider, model));
        match (&stated, by_table) {
            (Some(stated), _) => show_prices(table, name, stated),
            (None, Some(prices)) => show_prices(table, &format!("{name} ({})", known.date), prices),
            (None, None) => {}
        }
    };
    prices("prices", whole["model"].as_str().unwrap_or_default(), &whole["prices"]);
    let further = whole["models"].as_object();
    for (model, written) in further.into_iter().flatten() {
        prices(&format!("prices of {model}"), model, written);
    }
    let names: Vec<_> = further.into_iter().flatten().map(|(model, _)| model.as_str()).collect();
    table.field("also models", names.join(", "));
}

/// One field per limit.
pub fn limits(table: &mut Table, limits: &Value) {
    for (part, name) in [
        ("requests", "requests/min"),
        ("tokens", "tokens/min"),
        ("burst", "burst (minutes)"),
        ("in_flight", "in flight"),
        ("when_full", "when full"),
        ("max_wait", "max wait (s)"),
    ] {
        table.field(name, text(&limits[part]));
    }
}

fn show_prices(table: &mut Table, name: &str, prices: &Prices) {
    table.field(name, rate(prices.default_rate()));
    for DatedRate { from, until, rate: dated } in prices.dated() {
        let from = from.map_or(String::new(), |from| format!(" from {from}"));
        let until = until.map_or(String::new(), |until| format!(" until {until}"));
        table.field(&format!("{name}{from}{until}"), rate(dated));
    }
}

/// A rate in dollars per million tokens, as text.
fn rate(rate: &Rate) -> String {
    let mut words = format!("in ${}, out ${}", rate.input, rate.output);
    for (name, price) in [
        ("cache read", rate.cache_read),
        ("cache write", rate.cache_write),
        ("cache write 1h", rate.cache_write_long),
        ("batch in", rate.batch_input),
        ("batch out", rate.batch_output),
    ] {
        words += &price.map_or(String::new(), |price| format!(", {name} ${price}"));
    }
    if let Some(share) = rate.batch {
        words += &format!(", batch × {}", longshore_ai::Price::from(share));
    }
    words += &match rate.tiers.len() {
        0 => String::new(),
        tiers => format!(", {tiers} tiers"),
    };
    words + " per million tokens"
}

/// A value as text; empty if there is none.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            Some(whole) if whole.fract() == 0.0 && whole.abs() < 1e15 => {
                format!("{whole:.0}")
            }
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}
