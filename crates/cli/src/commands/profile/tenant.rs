//! `profile default` and `profile limits`: settings of all profiles of a tenant, stored as a
//! document beside them.

use longshore::ProfileName;
use longshore::accounts::ProfileRecord;
use longshore_ai::{TENANT_SETTINGS, TenantSettings};
use serde_json::{Value, json};

use super::{ProfileStore, document};
use crate::args::limit::LimitArg;
use crate::args::profile::{DefaultProfileArgs, TenantLimitArgs};
use crate::error::{WithHint, usage};
use crate::output::Table;

/// Shows or sets the profile that is used where none is named.
pub async fn default(profiles: &ProfileStore<'_>, typed: DefaultProfileArgs) -> anyhow::Result<()> {
    let Some(LimitArg(name)) = typed.name else {
        let (_, body) = stored(profiles).await?;
        return show(profiles, &body);
    };
    check_usable(profiles, name.as_ref()).await?;
    let change = ("default".to_owned(), name.as_ref().map(|name| json!(name)));
    let body = write(profiles, vec![change]).await?;
    profiles.settings.output.answer(&answer(profiles, &body), || match &name {
        Some(name) => format!("profile `{name}` is used where none is named"),
        None => "every request must now name a profile".to_owned(),
    })
}

/// Shows or sets the limits of all profiles together.
pub async fn limits(profiles: &ProfileStore<'_>, typed: TenantLimitArgs) -> anyhow::Result<()> {
    let mut changes = document::limits(&typed.limits);
    if let Some(LimitArg(fallback)) = typed.fallback {
        check_usable(profiles, fallback.as_ref()).await?;
        changes.push(("fallback".to_owned(), fallback.map(|name| json!(name))));
    }
    if changes.is_empty() {
        let (_, body) = stored(profiles).await?;
        return show(profiles, &body);
    }
    let body = write(profiles, changes).await?;
    let tenant = &profiles.tenant;
    profiles
        .settings
        .output
        .answer(&answer(profiles, &body), || format!("the limits of tenant `{tenant}` were changed"))
}

/// A default or fallback profile must exist, and must not be a template.
async fn check_usable(profiles: &ProfileStore<'_>, name: Option<&ProfileName>) -> anyhow::Result<()> {
    let Some(name) = name else { return Ok(()) };
    let record = profiles.require(super::check_name(name)?).await?;
    if record.body["template"] == Value::Bool(true) {
        return Err(usage(format!("profile `{name}` is a template")))
            .hint(format!("`longshore profile add OTHER --extends {name}` makes a usable one"));
    }
    Ok(())
}

async fn stored(profiles: &ProfileStore<'_>) -> anyhow::Result<(Option<ProfileRecord>, Value)> {
    let record = profiles.find(&ProfileName::new(TENANT_SETTINGS)?).await?;
    let body = record.as_ref().map_or_else(|| json!({}), |record| record.body.clone());
    Ok((record, body))
}

async fn write(profiles: &ProfileStore<'_>, changes: Vec<(String, Option<Value>)>) -> anyhow::Result<Value> {
    let (record, mut body) = stored(profiles).await?;
    document::apply(&mut body, changes)?;
    check(&body)?;
    let expected = record.map_or(0, |record| record.revision);
    let record = profiles.put(&ProfileName::new(TENANT_SETTINGS)?, Some(body), None, Some(expected)).await?;
    Ok(record.body)
}

fn check(body: &Value) -> anyhow::Result<()> {
    let limits = TenantSettings::read(body).map_err(usage)?.limits;
    let numbers = [limits.requests, limits.tokens, limits.burst];
    if numbers.into_iter().flatten().any(|n| !n.is_finite() || n <= 0.0) {
        return Err(usage("a limit is above zero")).hint("`none` lifts it");
    }
    Ok(())
}

fn answer(profiles: &ProfileStore<'_>, body: &Value) -> Value {
    let limits = body.get("limits").cloned().unwrap_or_else(|| json!({}));
    json!({
        "tenant": profiles.tenant,
        "default": body["default"],
        "fallback": body["fallback"],
        "limits": limits,
    })
}

fn show(profiles: &ProfileStore<'_>, body: &Value) -> anyhow::Result<()> {
    profiles.settings.output.record(&answer(profiles, body), || {
        let mut table = Table::record();
        table.field("tenant", &profiles.tenant);
        table.field("default profile", text(&body["default"]));
        table.field("fallback profile", text(&body["fallback"]));
        super::show::limits(&mut table, &body["limits"]);
        table
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}
