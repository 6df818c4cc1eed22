//! `profile default` and `profile limits`: what holds for all profiles of a tenant. Kept as a
//! document beside them.

use longshore::ProfileName;
use longshore::ledger::ProfileRecord;
use longshore_ai::{TENANT_SHEET, TenantSheet};
use serde_json::{Value, json};

use super::{Book, document};
use crate::args::limit::Limit;
use crate::args::profile::{DefaultProfile, TenantLimits};
use crate::error::{WithHint, usage};
use crate::output::Table;

/// Shows or sets the profile that is used where none is named.
pub async fn default(book: &Book<'_>, typed: DefaultProfile) -> anyhow::Result<()> {
    let Some(Limit(name)) = typed.name else {
        let (_, body) = kept(book).await?;
        return show(book, &body);
    };
    usable(book, name.as_ref()).await?;
    let change = ("default".to_owned(), name.as_ref().map(|name| json!(name)));
    let body = write(book, vec![change]).await?;
    book.settings.output.answer(&answer(book, &body), || match &name {
        Some(name) => format!("profile `{name}` is used where none is named"),
        None => "a profile must be named now".to_owned(),
    })
}

/// Shows or sets what all profiles together may ask.
pub async fn limits(book: &Book<'_>, typed: TenantLimits) -> anyhow::Result<()> {
    let mut changes = document::limits(&typed.limits);
    if let Some(Limit(fallback)) = typed.fallback {
        usable(book, fallback.as_ref()).await?;
        changes.push(("fallback".to_owned(), fallback.map(|name| json!(name))));
    }
    if changes.is_empty() {
        let (_, body) = kept(book).await?;
        return show(book, &body);
    }
    let body = write(book, changes).await?;
    let tenant = &book.tenant;
    book.settings
        .output
        .answer(&answer(book, &body), || format!("the limits of tenant `{tenant}` were changed"))
}

/// A profile that is named for everybody must be there, and must not be a template.
async fn usable(book: &Book<'_>, name: Option<&ProfileName>) -> anyhow::Result<()> {
    let Some(name) = name else { return Ok(()) };
    let record = book.known(super::ordinary(name)?).await?;
    if record.body["template"] == Value::Bool(true) {
        return Err(usage(format!("profile `{name}` is a template")))
            .hint(format!("`longshore profile add OTHER --extends {name}` makes one to be used"));
    }
    Ok(())
}

async fn kept(book: &Book<'_>) -> anyhow::Result<(Option<ProfileRecord>, Value)> {
    let record = book.find(&ProfileName::new(TENANT_SHEET)?).await?;
    let body = record.as_ref().map_or_else(|| json!({}), |record| record.body.clone());
    Ok((record, body))
}

async fn write(book: &Book<'_>, changes: Vec<(String, Option<Value>)>) -> anyhow::Result<Value> {
    let (record, mut body) = kept(book).await?;
    document::apply(&mut body, changes)?;
    check(&body)?;
    let expected = record.map_or(0, |record| record.revision);
    let record =
        book.put(&ProfileName::new(TENANT_SHEET)?, Some(body), None, Some(expected)).await?;
    Ok(record.body)
}

fn check(body: &Value) -> anyhow::Result<()> {
    let limits = TenantSheet::read(body).map_err(usage)?.limits;
    let numbers = [limits.requests, limits.tokens, limits.burst];
    if numbers.into_iter().flatten().any(|n| !n.is_finite() || n <= 0.0) {
        return Err(usage("a limit is above zero")).hint("`none` lifts it");
    }
    Ok(())
}

fn answer(book: &Book<'_>, body: &Value) -> Value {
    let limits = body.get("limits").cloned().unwrap_or_else(|| json!({}));
    json!({
        "tenant": book.tenant,
        "default": body["default"],
        "fallback": body["fallback"],
        "limits": limits,
    })
}

fn show(book: &Book<'_>, body: &Value) -> anyhow::Result<()> {
    book.settings.output.record(&answer(book, body), || {
        let mut table = Table::record();
        table.field("tenant", &book.tenant);
        table.field("default profile", text(&body["default"]));
        table.field("fallback profile", text(&body["fallback"]));
        super::show::limits(&mut table, &body["limits"]);
        table
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}
