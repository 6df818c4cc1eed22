//! What a report says, whatever it is rendered as: labels and values.

use super::words::{self, count, cut};
use super::{Report, Usage};
use crate::definition::{ByProfile, Definition, Post, Pre, Workers};

/// A label and what stands beside it.
pub(super) type Fact = (&'static str, String);

/// Characters of SQL that are shown.
const SQL: usize = 500;

/// The sentence that marks answers that no model gave.
pub(super) fn simulated(usage: &Usage) -> Option<String> {
    let Usage { answers, simulated, .. } = *usage;
    match simulated {
        0 => None,
        all if all == answers => {
            Some("Simulated: every answer was made up; no model was asked.".to_owned())
        }
        some => Some(format!(
            "Simulated: {} of {} answers were made up; no model was asked for them.",
            count(some),
            count(answers)
        )),
    }
}

/// Where the batch stands.
pub(super) fn standing(report: &Report) -> Vec<Fact> {
    let batch = &report.batch;
    let counts = &batch.counts;
    let mut facts = vec![
        ("Type", batch.kind.clone()),
        ("Tenant", batch.tenant.to_string()),
        ("Status", batch.status.to_string()),
    ];
    facts.extend(batch.reason.clone().map(|reason| ("Reason", reason)));
    let sealed = if batch.sealed { "" } else { " (more may come)" };
    facts.push(("Rows", format!("{}{sealed}", count(counts.total()))));
    facts.push(("Done", count(counts.done)));
    facts.push(("Failed", count(counts.failed)));
    facts.push(("Cancelled", count(counts.cancelled)));
    if counts.live() > 0 {
        facts.push(("Not ended", count(counts.live())));
    }
    if batch.generation > 1 {
        facts.push(("Generation", batch.generation.to_string()));
    }
    facts
}

/// When, how long, how fast.
pub(super) fn times(report: &Report) -> Vec<Fact> {
    let batch = &report.batch;
    let mut facts = vec![("Initiated", batch.initiated_at.to_string())];
    if !batch.initiated_by.is_empty() {
        facts.push(("Initiated by", batch.initiated_by.clone()));
    }
    facts.extend(batch.started_at.map(|at| ("First row", at.to_string())));
    facts.extend(batch.completed_at.map(|at| ("Ended", at.to_string())));
    facts.extend(report.took().map(|took| ("Took", words::duration(took))));
    facts.extend(report.rate().map(|rate| ("Rows per second", format!("{rate:.1}"))));
    if !batch.notes.is_empty() {
        facts.push(("Notes", batch.notes.clone()));
    }
    facts
}

/// What the answers took.
pub(super) fn usage(report: &Report) -> Vec<Fact> {
    let Usage { answers, cost, tokens_in, tokens_out, .. } = report.usage;
    let quantile =
        |label, percent| report.latency.quantile(percent).map(|value| (label, value.to_string()));
    let mut facts = vec![
        ("Answers", count(answers)),
        ("Cost", cost.to_string()),
        ("Tokens asked", count(tokens_in)),
        ("Tokens answered", count(tokens_out)),
    ];
    facts.extend(quantile("Half took", 50));
    facts.extend(quantile("90 % took", 90));
    facts.extend(quantile("99 % took", 99));
    facts
}

/// What the batch was to do.
pub(super) fn settings(definition: &Definition) -> Vec<Fact> {
    let Definition { candidates, .. } = definition;
    let workers = match definition.workers {
        Workers::Fixed(workers) => workers.to_string(),
        Workers::Auto => "auto".to_owned(),
    };
    vec![
        ("Batch file", definition.source.clone()),
        ("Database", words::database(&definition.database)),
        ("Candidates", cut(&candidates.sql, SQL)),
        ("Key", candidates.key.clone()),
        ("PRE", pre(&definition.pre)),
        ("Profile", profile(&definition.ai.profile)),
        ("POST", post(&definition.post)),
        ("Workers", workers),
        ("Attempts", definition.retry.max_attempts.to_string()),
    ]
}

fn profile(by: &ByProfile) -> String {
    match by {
        ByProfile::Named(_) => format!("{} (the tenant's own)", by.shown()),
        ByProfile::Written(profile) => {
            format!("{} ({}: {})", profile.name, profile.provider, profile.model)
        }
    }
}

fn pre(pre: &Pre) -> String {
    match pre {
        Pre::Sql(pre) => format!("SQL and {}", pre.template_name),
        Pre::Code(name) => format!("code `{name}`"),
        Pre::Command(pre) => format!("command `{}`", pre.command.shown()),
    }
}

fn post(post: &Post) -> String {
    match post {
        Post::Sql(post) => format!("SQL and {} rules", post.rules.len()),
        Post::Code(name) => format!("code `{name}`"),
        Post::Command(post) => format!("command `{}`", post.command.shown()),
    }
}
