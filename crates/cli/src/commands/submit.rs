//! `submit`: submits one unit, or (in `submit_lines`) many.

use std::io::Read;

use anyhow::Context;
use longshore::store::SendResult;
use longshore::unit::{ConcurrencyCap, Dependencies, MAX_PAYLOAD, Weight};
use longshore::{Client, Kind, NewUnit, Policy, RetryPolicy, Timestamp, Unit, UnitId, UnitState};
use longshore_dispatch::system::JobRole;
use serde::Serialize;

use super::names::NameLookup;
use super::{
    connect, script_directives, submit_direct, submit_http, submit_job, submit_lines, submit_script, wait,
};
use crate::args::resource;
use crate::args::submit::SubmitArgs;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::ndjson_reader::PayloadCheck;
use crate::settings::Settings;
use crate::time_arg::TimeArg;
use crate::{exec, ndjson_reader};

/// Runs the command.
pub async fn run(typed: SubmitArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    if let Some(file) = &typed.script.job {
        return submit_job::run(file, &typed, settings).await;
    }
    if typed.script.is_runnable() {
        let typed = script_directives::apply(typed, std::env::args_os())?;
        let system = typed.script.qsys.unwrap_or(settings.dispatch.qsys);
        if system.role == JobRole::Direct {
            return submit_direct::run(&typed, system.base, settings).await;
        }
        return submit_script::run(typed, settings).await;
    }
    if typed.lines.is_some() {
        return submit_lines::run(typed, settings).await;
    }
    let payload = match &typed.call.url {
        Some(url) => submit_http::payload(url, &typed)?,
        None => payload(typed.payload.as_deref().unwrap_or("-"))?,
    };
    let (_store, client) = connect(settings).await?;
    let template = SubmitTemplate::new(&typed, settings, &client).await?;
    payload_check(typed.kind()?)(&payload).map_err(|problem| usage(format!("the payload {problem}")))?;
    let mut unit = template.unit(payload);
    unit.awaited = typed.wait;
    let (id, status) = match client.send_many(vec![unit], typed.when_full()).await?.pop() {
        Some(SendResult::Created(id)) => (id, "created"),
        Some(SendResult::Existing(id)) => (id, "existing"),
        Some(SendResult::Rejected(rejection)) => return Err(rejection).context("the unit was not sent"),
        None => anyhow::bail!("the store returned no unit"),
    };
    if !typed.wait {
        print_id(id, status, settings)?;
        return Ok(ExitCode::Good);
    }
    settings.output.note(format!("unit {id}"));
    let limit = typed.wait_limit.map(|span| span.0);
    let unit = client.wait(id, limit).await;
    let unit = unit.hint(format!("it continues; `longshore unit show {id}` shows it"))?;
    print_outcome(&unit, Some(status), settings)
}

fn print_id(id: UnitId, status: &'static str, settings: &Settings) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct UnitSubmitResult {
        unit: UnitId,
        status: &'static str,
    }
    if settings.output.is_json() {
        return settings.output.json(&UnitSubmitResult { unit: id, status });
    }
    settings.output.line(id.to_string())
}

/// Prints the outcome of a unit, and returns the exit code for it. `status` is the result of the
/// submission, if there was one.
pub fn print_outcome(
    unit: &Unit,
    status: Option<&'static str>,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let output = settings.output;
    if output.is_json() {
        let mut value = serde_json::json!({
            "unit": unit.id, "state": unit.state, "result": unit.result, "failure": unit.failure,
        });
        if let Some(status) = status {
            value["status"] = status.into();
        }
        output.json(&value)?;
    } else if let Some(result) = &unit.result {
        output.line(String::from_utf8_lossy(result.as_bytes()))?;
    }
    if unit.state != UnitState::Done {
        let why = unit.failure.as_ref().map_or(String::new(), |failure| format!(": {failure}"));
        output.note(format!("{}{why}", unit.state));
    }
    Ok(wait::unit_code(unit.state))
}

/// Reads the payload from the argument, a file or stdin.
pub fn payload(argument: &str) -> anyhow::Result<Vec<u8>> {
    let bytes = match (argument, argument.strip_prefix('@')) {
        ("-", _) => read(std::io::stdin().lock()).context("cannot read stdin")?,
        (_, Some(path)) => {
            let file = std::fs::File::open(path);
            file.and_then(read).with_context(|| format!("cannot read {path}"))?
        }
        (text, None) => text.as_bytes().to_vec(),
    };
    let payload = bytes.trim_ascii();
    if payload.is_empty() {
        return Err(usage("the payload is empty")).hint("write null for a unit without one");
    }
    ndjson_reader::check(payload).map_err(|problem| usage(format!("the payload {problem}")))?;
    Ok(payload.to_vec())
}

/// What a payload of this kind must be, as far as this program knows.
pub fn payload_check(kind: &Kind) -> PayloadCheck {
    if kind.as_str() == exec::KIND { exec::payload::check_payload } else { |_| Ok(()) }
}

/// Reads at most one byte more than a payload may have, which is enough to detect one that is too
/// long.
pub fn read(from: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_PAYLOAD as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The template of all units of one command.
pub struct SubmitTemplate(NewUnit);

impl SubmitTemplate {
    /// The unit that the arguments describe, still without payload.
    /// Distances from now count by the store's clock.
    pub async fn new(typed: &SubmitArgs, settings: &Settings, client: &Client) -> anyhow::Result<Self> {
        let now = match typed.delay.is_some() || matches!(typed.deadline, Some(TimeArg::Distance(_))) {
            true => client.store_time().await?,
            false => Timestamp::ZERO,
        };
        let mut unit = NewUnit::new(typed.kind()?.clone(), Vec::new());
        unit.tenant = settings.tenant.clone().unwrap_or_default();
        unit.queue = typed.queue.clone().unwrap_or_else(|| settings.queue.clone());
        unit.priority = typed.priority;
        unit.dedup = typed.dedup();
        unit.not_before = typed.not_before(now);
        unit.deadline = typed.deadline.map(|time| time.after(now));
        unit.weight =
            Weight { slots: typed.weight, resources: resource::collect_resources(&typed.resource)? };
        unit.cap = cap(typed);
        unit.dependencies = Dependencies {
            units: NameLookup::new(None, settings).units(&typed.after).await?,
            on_failure: typed.on_dependency_failure.into(),
        };
        unit.policy = policy(typed);
        Ok(Self(unit))
    }

    /// A fresh unit with this payload.
    pub fn unit(&self, payload: Vec<u8>) -> NewUnit {
        NewUnit { id: UnitId::new(), payload: payload.into(), ..self.0.clone() }
    }
}

fn cap(typed: &SubmitArgs) -> Option<ConcurrencyCap> {
    Some(ConcurrencyCap { key: typed.cap_key.clone()?, limit: typed.cap_limit? })
}

/// The sender's policy, if it has one; otherwise the kind's applies.
fn policy(typed: &SubmitArgs) -> Option<Policy> {
    if typed.max_attempts.is_none() && typed.timeout.is_none() {
        return None;
    }
    // A command may have done half its work: it is retried only on request.
    let is_exec = typed.kind.as_ref().is_some_and(|kind| kind.as_str() == exec::KIND);
    let retry = if is_exec { RetryPolicy::never() } else { RetryPolicy::default() };
    let max_attempts = typed.max_attempts.unwrap_or(retry.max_attempts);
    Some(Policy {
        retry: RetryPolicy { max_attempts, ..retry },
        timeout: typed.timeout.map(|span| span.0),
        ..Policy::default()
    })
}
