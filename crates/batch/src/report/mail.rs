//! The mail at the end of a batch: its counts, its failures by reason, and a link to its page.

use serde_json::Value;

use crate::definition::{EndMail, MailMode};
use crate::mail::{MailMetadata, OutgoingMail};

/// The most reasons of failures in a mail.
const MAX_REASONS: usize = 20;

/// One message for each recipient, from the facts of a completion. A repeat has the same keys.
pub fn messages(mail: &EndMail, facts: &Value) -> Vec<OutgoingMail> {
    let text = |name: &str| shown(&facts[name]);
    let failed = match facts["failed"].as_u64() {
        Some(0) | None => String::new(),
        Some(failed) => format!(", {failed} failed"),
    };
    let subject =
        format!("{} {}: {}, {} done{failed}", text("type"), text("batch"), text("status"), text("done"));
    let (mjml, count) = (mjml(facts), facts["total"].as_u64().unwrap_or_default());
    let message = |(number, to): (usize, &String)| OutgoingMail {
        key: format!("batch-end:{}:{}:{number}", text("batch"), text("generation")),
        from: mail.from.clone(),
        to: to.clone(),
        subject: subject.clone(),
        headers: Vec::new(),
        folder: std::path::PathBuf::new(),
        metadata: MailMetadata {
            mode: MailMode::Immediate,
            day: String::new(),
            since: Value::Null,
            last: Value::Null,
            items: count,
        },
        mjml: mjml.clone(),
    };
    mail.to.iter().enumerate().map(message).collect()
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn mjml(facts: &Value) -> String {
    let row =
        |name: &str, value: &str| format!("<tr><td>{}</td><td>{}</td></tr>", escaped(name), escaped(value));
    let mut rows = String::new();
    for name in ["status", "reason", "total", "done", "failed", "cancelled"] {
        if !matches!(&facts[name], Value::Null) && facts[name] != 0 {
            rows += &row(name, &shown(&facts[name]));
        }
    }
    let seconds =
        std::time::Duration::from_secs_f64(facts["seconds"].as_f64().unwrap_or_default().clamp(0.0, 1e9));
    rows += &row("took", &longshore::duration::format(seconds));
    let simulated = if facts["simulated"] == true { " (simulated)" } else { "" };
    rows += &row("cost", &format!("${}{simulated}", facts["cost_usd"]));
    let failures = facts["failures"].as_array().map(Vec::as_slice).unwrap_or_default();
    let reasons: String = failures.iter().take(MAX_REASONS).map(reason).collect();
    let reasons = match reasons.is_empty() {
        true => reasons,
        false => format!("<mj-text font-size=\"16px\">Failures</mj-text><mj-table>{reasons}</mj-table>"),
    };
    let link = facts["link"]
        .as_str()
        .map_or(String::new(), |url| format!("<mj-text><a href=\"{0}\">{0}</a></mj-text>", escaped(url)));
    let title = escaped(&format!("Batch {}", shown(&facts["batch"])));
    format!(
        "<mjml><mj-body><mj-section><mj-column><mj-text font-size=\"20px\">{title}</mj-text>\
         <mj-table>{rows}</mj-table>{reasons}{link}</mj-column></mj-section></mj-body></mjml>"
    )
}

fn reason(group: &Value) -> String {
    let rows = group["examples"].as_array().into_iter().flatten().map(shown).collect::<Vec<_>>().join(", ");
    let cells =
        [shown(&group["count"]), shown(&group["code"]), shown(&group["message"]), format!("rows {rows}")];
    let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
    format!("<tr>{cells}</tr>")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_mail_groups_failures_links_the_page_and_escapes_what_rows_say() {
        let facts = json!({
            "batch": "20261118-1", "type": "review", "status": "complete", "generation": 1, "total": 30, "done": 26,
            "failed": 4, "cancelled": 0, "reason": null, "seconds": 61.5, "cost_usd": 0.0012, "simulated": false,
            "failures": [{ "count": 4, "code": "bad-answer", "message": "<b> & more", "examples": ["3", "7"] }],
            "link": "https://longshore.example/batches/20261118-1",
        });
        let mail = EndMail {
            from: "night@example.com".into(),
            to: vec!["a@example.com".into(), "b@example.com".into()],
        };
        let sent = messages(&mail, &facts);
        assert_eq!(sent.len(), 2);
        assert_eq!(sent[0].subject, "review 20261118-1: complete, 26 done, 4 failed");
        assert_ne!(sent[0].key, sent[1].key);
        assert_eq!(messages(&mail, &facts), sent, "a repeat is recognised by its keys");
        let mjml = &sent[0].mjml;
        for words in [
            "<td>4</td><td>bad-answer</td><td>&lt;b&gt; &amp; more</td><td>rows 3, 7</td>",
            "<a href=\"https://",
            "1 min 1 s",
        ] {
            assert!(mjml.contains(words), "no {words} in {mjml}");
        }
        assert!(!mjml.contains("cancelled") && !mjml.contains("reason"), "{mjml}");
    }
}
