//! Renders the report as one HTML page: styles and chart inline, no script, nothing loaded. Text
//! from outside is escaped.

use std::fmt::Write;

use super::fields::{self, LabelledValue};
use super::format::count;
use super::latency::label;
use super::{FailureGroup, Latency, Report};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5b6675;--line:#d8dee6;--page:#fff;--bar:#2f6fb3;\
--mark:#fff3cd}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#9aa6b5;--line:#343d49;--page:#14181e;\
--bar:#6aa5e3;--mark:#4a3d10}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:60rem;\
margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.3rem .8rem .3rem 0;\
border-bottom:1px solid var(--line);overflow-wrap:anywhere}
th{font-weight:normal;color:var(--soft);white-space:nowrap}
th[scope]{width:11rem}
td.n{text-align:right;font-variant-numeric:tabular-nums}
.mark{background:var(--mark);padding:.5rem .8rem;border-radius:.3rem}
svg{max-width:100%;height:auto}
svg rect{fill:var(--bar)}svg text{fill:var(--ink);font:12px system-ui,sans-serif}
footer{margin-top:2rem;color:var(--soft)}";

pub(super) fn render(report: &Report) -> String {
    let title = escape(report.batch.id.as_str());
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>Batch {title}</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n\
         <h1>Batch {title}</h1>\n"
    );
    if let Some(mark) = fields::simulated(&report.usage) {
        let _ = writeln!(page, "<p class=\"mark\">{}</p>", escape(&mark));
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
    let _ = write!(page, "<footer>Report of {}.</footer>\n</body>\n</html>\n", report.at);
    page
}

fn section(page: &mut String, title: &str, fields: &[LabelledValue]) {
    let _ = writeln!(page, "<h2>{title}</h2>");
    table(page, fields);
}

fn table(page: &mut String, fields: &[LabelledValue]) {
    page.push_str("<table>\n");
    for (label, value) in fields {
        let value = escape(value);
        let _ = writeln!(page, "<tr><th scope=\"row\">{label}</th><td>{value}</td></tr>");
    }
    page.push_str("</table>\n");
}

fn failures(page: &mut String, groups: &[FailureGroup]) {
    page.push_str("<h2>Failures</h2>\n");
    if groups.is_empty() {
        page.push_str("<p>None.</p>\n");
        return;
    }
    page.push_str("<table>\n<tr><th>rows</th><th>code</th><th>what happened</th><th>for example</th></tr>\n");
    for group in groups {
        let FailureGroup { code, message, examples, .. } = group;
        let examples = examples.join(", ");
        let cells = [code, message, &examples].map(|text| format!("<td>{}</td>", escape(text)));
        let rows = count(group.count);
        let _ = writeln!(page, "<tr><td class=\"n\">{rows}</td>{}</tr>", cells.concat());
    }
    page.push_str("</table>\n");
}

/// The latency histogram: one bar per bucket.
fn histogram(page: &mut String, latency: &Latency) {
    const WIDTH: u64 = 60;
    const HEIGHT: u64 = 120;
    let parts = latency.used();
    let Some(highest) = parts.iter().map(|(_, count)| *count).max() else { return };
    let (width, height) = (WIDTH * parts.len() as u64, HEIGHT + 40);
    let _ = write!(
        page,
        "<h2>Latency</h2>\n<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"Answers by how long they took\">\n"
    );
    for (at, (bound, answers)) in parts.iter().enumerate() {
        let tall = (answers * HEIGHT).div_ceil(highest.max(1));
        let left = at as u64 * WIDTH;
        let (top, middle) = (20 + HEIGHT - tall, left + WIDTH / 2);
        let (bar, name, answers) = (WIDTH - 8, escape(&label(*bound)), count(*answers));
        let _ = writeln!(
            page,
            "<rect x=\"{}\" y=\"{top}\" width=\"{bar}\" height=\"{tall}\" rx=\"2\"/>\
             <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{answers}</text>\
             <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{name}</text>",
            left + 4,
            top - 5,
            HEIGHT + 36,
        );
    }
    page.push_str("</svg>\n");
}

/// Escapes text for HTML content and attributes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // HTML allows no other control characters.
            char if char.is_control() && !matches!(char, '\n' | '\t') => escaped.push('\u{fffd}'),
            char => escaped.push(char),
        }
    }
    escaped
}
