//! The labels and values of a report, for all formats.

use std::time::Duration;

use longshore::text::truncate_chars;

use super::format::{self, count};
use super::{BatchUsage, Report};
use crate::definition::{Definition, Post, Pre, ProfileRef, Revision, RowConcurrency, RowStep, RowStepSpec};

/// A label and its value.
pub(super) type LabelledValue = (&'static str, String);

/// Maximum characters of SQL shown.
const MAX_SQL_CHARS: usize = 500;

/// The notice about simulated answers.
pub(super) fn simulated(usage: &BatchUsage) -> Option<String> {
    let BatchUsage { answers, simulated, .. } = *usage;
    match simulated {
        0 => None,
        all if all == answers => Some("Simulated: every answer was made up; no model was asked.".to_owned()),
        some => Some(format!(
            "Simulated: {} of {} answers were made up; no model was asked for them.",
            count(some),
            count(answers)
        )),
    }
}

/// Status and counts.
pub(super) fn status(report: &Report) -> Vec<LabelledValue> {
    let batch = &report.batch;
    let counts = &batch.counts;
    let mut fields = vec![
        ("Type", batch.kind.clone()),
        ("Tenant", batch.tenant.to_string()),
        ("Status", batch.status.to_string()),
    ];
    fields.extend(batch.reason.clone().map(|reason| ("Reason", reason)));
    let sealed = if batch.sealed { "" } else { " (more may come)" };
    fields.push(("Rows", format!("{}{sealed}", count(counts.total()))));
    fields.push(("Done", count(counts.done)));
    fields.push(("Failed", count(counts.failed)));
    fields.push(("Cancelled", count(counts.cancelled)));
    if counts.live() > 0 {
        fields.push(("Not ended", count(counts.live())));
    }
    if batch.generation > 1 {
        fields.push(("Generation", batch.generation.to_string()));
    }
    fields
}

/// Times, duration and rate.
pub(super) fn times(report: &Report) -> Vec<LabelledValue> {
    let batch = &report.batch;
    let mut fields = vec![("Initiated", batch.initiated_at.to_string())];
    if !batch.initiated_by.is_empty() {
        fields.push(("Initiated by", batch.initiated_by.clone()));
    }
    fields.extend(batch.started_at.map(|at| ("First row", at.to_string())));
    fields.extend(batch.completed_at.map(|at| ("Ended", at.to_string())));
    fields.extend(report.duration().map(|took| ("Took", longshore::duration::format(took))));
    let progress = report.progress();
    if progress.paused >= Duration::from_secs(1) {
        fields.push(("Paused", longshore::duration::format(progress.paused)));
    }
    fields.extend(progress.rate.map(|rate| ("Rows per second", format!("{rate:.1}"))));
    if !batch.notes.is_empty() {
        fields.push(("Notes", batch.notes.clone()));
    }
    fields
}

/// Tokens, cost and latency of the answers; `None` for a mail batch, which asks no model.
pub(super) fn usage(report: &Report) -> Option<Vec<LabelledValue>> {
    if report.definition.as_ref().is_some_and(|definition| definition.mail().is_some()) {
        return None;
    }
    let BatchUsage { answers, cost, tokens_in, tokens_out, .. } = report.usage;
    let quantile = |label, percent| report.latency.quantile(percent).map(|value| (label, value.to_string()));
    let mut fields = vec![
        ("Answers", count(answers)),
        ("Cost", cost.to_string()),
        ("Tokens asked", count(tokens_in)),
        ("Tokens answered", count(tokens_out)),
    ];
    fields.extend(quantile("Half took", 50));
    fields.extend(quantile("90 % took", 90));
    fields.extend(quantile("99 % took", 99));
    Some(fields)
}

/// Settings of the definition.
pub(super) fn settings(definition: &Definition) -> Vec<LabelledValue> {
    let Definition { candidates, .. } = definition;
    let workers = match definition.workers {
        RowConcurrency::Fixed(workers) => workers.to_string(),
        RowConcurrency::Auto => "auto".to_owned(),
    };
    let mut fields = vec![
        ("Batch file", definition.source.clone()),
        ("Database", format::database(&definition.database)),
        ("Candidates", truncate_chars(&candidates.sql, MAX_SQL_CHARS)),
        ("Key", candidates.key.clone()),
        ("PRE", pre(&definition.pre)),
        ("Steps", steps(definition)),
        match &definition.step {
            RowStep::Ai(ai) => ("Profile", profile(&ai.profile)),
            RowStep::Mail(mail) => ("Mail", mail.mode.as_str().to_owned()),
        },
        ("POST", post(&definition.post)),
        ("Workers", workers),
        ("Attempts", definition.retry.max_attempts.to_string()),
    ];
    fields.retain(|(_, value)| !value.is_empty());
    fields.extend(definition.revisions.iter().map(|revision| {
        let Revision { number, at, by, changed, .. } = revision;
        ("Revision", format!("{number}: {} changed at {at} by {by}", changed.join(", ")))
    }));
    fields
}

fn steps(definition: &Definition) -> String {
    let steps: Vec<String> = definition.steps.iter().map(RowStepSpec::describe).collect();
    steps.join("; ")
}

fn profile(by: &ProfileRef) -> String {
    match by {
        ProfileRef::Named(_) => format!("{} (the tenant's own)", by.display_name()),
        ProfileRef::Inline(profile) => {
            format!("{} ({}: {})", profile.name, profile.provider, profile.model)
        }
    }
}

fn pre(pre: &Pre) -> String {
    match pre {
        Pre::Sql(pre) => format!("SQL and {}", pre.template_name),
        Pre::Code(name) => format!("code `{name}`"),
        Pre::Command(pre) => format!("command `{}`", pre.command.command_line()),
    }
}

fn post(post: &Post) -> String {
    match post {
        Post::Sql(post) => format!("SQL and {} rules", post.rules.len()),
        Post::Code(name) => format!("code `{name}`"),
        Post::Command(post) => format!("command `{}`", post.command.command_line()),
    }
}
