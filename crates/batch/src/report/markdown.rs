//! Renders the report as Markdown. Text from outside is escaped.

use std::fmt::Write;

use super::fields::{self, LabelledValue};
use super::format::count;
use super::latency::label;
use super::{FailureGroup, Latency, Report};

/// Maximum characters of a bar.
const MAX_BAR_CHARS: u64 = 40;

pub(super) fn render(report: &Report) -> String {
    let mut page = format!("# Batch {}\n\n", escape(report.batch.id.as_str()));
    if let Some(mark) = fields::simulated(&report.usage) {
        let _ = writeln!(page, "> **{mark}**\n");
    }
    table(&mut page, &fields::status(report));
    section(&mut page, "Time", &fields::times(report));
    if let Some(usage) = fields::usage(report) {
        section(&mut page, "Answers", &usage);
    }
    histogram(&mut page, &report.latency);
    failures(&mut page, &report.failures);
    if let Some(definition) = &report.definition {
        section(&mut page, "Settings", &fields::settings(definition));
    }
    let _ = writeln!(page, "\nReport of {}.", report.at);
    page
}

fn section(page: &mut String, title: &str, fields: &[LabelledValue]) {
    let _ = writeln!(page, "\n## {title}\n");
    table(page, fields);
}

fn table(page: &mut String, fields: &[LabelledValue]) {
    page.push_str("| | |\n|---|---|\n");
    for (label, value) in fields {
        let _ = writeln!(page, "| {label} | {} |", escape(value));
    }
}

fn histogram(page: &mut String, latency: &Latency) {
    let parts = latency.used();
    let Some(highest) = parts.iter().map(|(_, count)| *count).max() else { return };
    page.push_str("\n## Latency\n\n```text\n");
    for (bound, answers) in parts {
        let length = (answers * MAX_BAR_CHARS).div_ceil(highest.max(1));
        let bar: String = (0..length).map(|_| '█').collect();
        let _ = writeln!(page, "{:>9}  {bar} {}", label(*bound), count(*answers));
    }
    page.push_str("```\n");
}

fn failures(page: &mut String, groups: &[FailureGroup]) {
    page.push_str("\n## Failures\n\n");
    if groups.is_empty() {
        page.push_str("None.\n");
        return;
    }
    page.push_str("| rows | code | what happened | for example |\n|---:|---|---|---|\n");
    for group in groups {
        let FailureGroup { code, message, examples, .. } = group;
        let examples = examples.join(", ");
        let cells = [code, message, &examples].map(|text| escape(text)).join(" | ");
        let _ = writeln!(page, "| {} | {cells} |", count(group.count));
    }
}

/// Escapes text for Markdown, on one line.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '#' | '|' | '!' | '~' => {
                escaped.extend(['\\', char]);
            }
            char if char.is_control() => escaped.push(' '),
            char => escaped.push(char),
        }
    }
    escaped
}
