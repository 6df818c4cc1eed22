//! `workers`, `on_lost`, `[retry]` and `[failures]`: concurrency, retries and failure limits.

use std::time::Duration;

use longshore::batch::{FailureLimit, FailureThreshold, OnThreshold};
use longshore::{OnLost, RetryPolicy};
use toml::de::DeValue;

use crate::definition::RowConcurrency;

use super::Overrides;
use super::error::FileError;
use super::section::{Field, Section};

pub(super) fn workers(root: &Section<'_>, overrides: &Overrides) -> Result<RowConcurrency, FileError> {
    let written = root.field("workers").map(|field| match field.value() {
        DeValue::Integer(_) => field.small_count().map(RowConcurrency::Fixed),
        DeValue::String(word) if word == "auto" => Ok(RowConcurrency::Auto),
        _ => Err(field.error("`workers` must be a number or \"auto\"")),
    });
    Ok(overrides.workers.or(written.transpose()?).unwrap_or_default())
}

pub(super) fn on_lost(root: &Section<'_>) -> Result<OnLost, FileError> {
    let choices = [("rerun", OnLost::Rerun), ("fail", OnLost::Fail)];
    root.field("on_lost").map_or(Ok(OnLost::default()), |field| field.choice(&choices))
}

pub(super) fn retry(root: &Section<'_>) -> Result<RetryPolicy, FileError> {
    // Retrying a message costs nothing and its sender is not waiting for it; an MJML renderer may
    // be down for half an hour.
    let max_attempts = if root.field("mail").is_some() { 20 } else { 3 };
    let policy = RetryPolicy { max_attempts, cap: Duration::from_secs(300), ..RetryPolicy::default() };
    Ok(retry_section(root, policy.clone())?.unwrap_or(policy))
}

/// The section `retry` of the file or of a step; what it leaves out is that of `policy`.
pub(super) fn retry_section(
    parent: &Section<'_>,
    mut policy: RetryPolicy,
) -> Result<Option<RetryPolicy>, FileError> {
    let Some(section) = parent.section("retry", &["attempts", "base", "cap"])? else {
        return Ok(None);
    };
    if let Some(field) = section.field("attempts") {
        policy.max_attempts = field.small_count()?;
    }
    if let Some(field) = section.field("base") {
        policy.base = field.duration_or_zero()?;
    }
    if let Some(field) = section.field("cap") {
        policy.cap = field.duration_or_zero()?;
    }
    if policy.cap < policy.base {
        return Err(section.error(format!("`{0}.cap` is shorter than `{0}.base`", section.name())));
    }
    Ok(Some(policy))
}

/// The failure threshold: 10 % of the rows by default, so that ten thousand failing calls are
/// stopped early. A batch with `[mail]` has none by default: messages cost nothing, and an
/// undeliverable one is no reason to hold up the others.
pub(super) fn threshold(root: &Section<'_>) -> Result<Option<FailureThreshold>, FileError> {
    let mut limit = Some(FailureLimit::Percent(10.0));
    let mut then = OnThreshold::Pause;
    let section = root.section("failures", &["limit", "then"])?;
    if section.is_none() && root.field("mail").is_some() {
        return Ok(None);
    }
    if let Some(section) = section {
        if let Some(field) = section.field("limit") {
            limit = failure_limit(&field)?;
        }
        if let Some(field) = section.field("then") {
            then = field.choice(&[("pause", OnThreshold::Pause), ("fail", OnThreshold::Fail)])?;
        }
    }
    Ok(limit.map(|limit| FailureThreshold { limit, then }))
}

fn failure_limit(field: &Field<'_>) -> Result<Option<FailureLimit>, FileError> {
    let text = match field.value() {
        DeValue::Integer(_) => return Ok(Some(FailureLimit::Units(field.count()?))),
        DeValue::String(_) => field.text()?,
        _ => return Err(field.type_error("a number of rows, a share as \"5%\", or \"none\"")),
    };
    if text == "none" {
        return Ok(None);
    }
    let share = text.strip_suffix('%').and_then(|share| share.trim().parse::<f64>().ok());
    match share {
        Some(share) if share > 0.0 && share <= 100.0 => Ok(Some(FailureLimit::Percent(share))),
        Some(_) => Err(field.error(format!("`{}` must be above 0% and at most 100%", field.name))),
        None => {
            let message = format!("`{}`: `{text}` is not a limit", field.name);
            Err(field.error(message).hint("write a number of rows, a share as \"5%\", or \"none\""))
        }
    }
}
