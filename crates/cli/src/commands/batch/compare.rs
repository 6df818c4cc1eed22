//! `batch compare`: the answers of two batches over the same rows, side by side.

use std::io::Write;

use anyhow::anyhow;
use longshore::{Batch, BatchId, Client, Store};
use longshore_ai::Cost;
use longshore_batch::answers::{AnswerComparison, AnswerSet, ComparedAnswer, ComparedRow};
use longshore_batch::row_listing::{self, ListedRow};
use longshore_batch::sql_json::{from_json, show_key};
use serde::Serialize;
use serde_json::Value;

use super::context::connect_to_batch;
use super::summary;
use crate::args::batch::BatchCompareArgs;
use crate::csv;
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// The most rows of a compared batch: they are held in memory.
const MAX_ROWS: u64 = 10_000;

/// Characters of an answer in the table.
const WIDTH: usize = 44;

/// The comparison as JSON.
#[derive(Serialize)]
struct Comparison<'a> {
    batches: [&'a BatchId; 2],
    #[serde(flatten)]
    comparison: &'a AnswerComparison,
}

/// Runs the command.
pub async fn run(typed: BatchCompareArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let (store, client) = connect_to_batch(&typed.a, settings).await?;
    let a = rows(&*store, &client, &typed.a).await?;
    let b = rows(&*store, &client, &typed.b).await?;
    let comparison = AnswerComparison::of(&a.1, &b.1);
    let names = [&a.0.id, &b.0.id];
    if comparison.rows.is_empty() {
        return Err(anyhow!("batches `{}` and `{}` have no row in common", names[0], names[1]))
            .hint("`batch run FILE --sample 50 --no-post`, with one file and then with the other, asks about the same rows");
    }
    if comparison.a.answers + comparison.b.answers == 0 {
        return Err(anyhow!("neither batch has kept its answers"))
            .hint("[ai] keep_answers = true, --sample and --no-post keep them");
    }
    let output = settings.output;
    if typed.csv {
        let mut out = output.raw();
        for line in csv_lines(&comparison) {
            out.write_all(line.as_bytes())?;
        }
        out.flush()?;
    } else if output.is_json() {
        output.json(&Comparison { batches: names, comparison: &comparison })?;
    } else {
        print(&comparison, names, typed.all, settings)?;
    }
    Ok(ExitCode::Good)
}

async fn rows(store: &dyn Store, client: &Client, name: &BatchId) -> anyhow::Result<(Batch, Vec<ListedRow>)> {
    let batch = store.batch(client.scope(), name).await?;
    let rows = row_listing::all_rows(store, client.scope(), name, MAX_ROWS).await?;
    let total = batch.counts.total();
    let too_many = || anyhow!("batch `{name}` has {total} rows, and at most {MAX_ROWS} are compared");
    let rows = rows.ok_or_else(too_many).hint("`batch run FILE --sample 50` runs a few, spread over all")?;
    Ok((batch, rows))
}

fn print(
    comparison: &AnswerComparison,
    names: [&BatchId; 2],
    all: bool,
    settings: &Settings,
) -> anyhow::Result<()> {
    let AnswerComparison { a, b, rows, only_a, only_b, agreement, fields } = comparison;
    let output = settings.output;
    output.list::<Value>(&[], || sides(names, a, b))?;
    let agreeing = rows.iter().filter(|row| row.agree).count();
    let percent = percent(agreement.unwrap_or_default());
    output.line(format!("\n{agreeing} of {} rows agree ({percent})", rows.len()))?;
    if *only_a + *only_b > 0 {
        output.line(format!("not compared: {only_a} rows only in a, {only_b} only in b"))?;
    }
    if !fields.is_empty() {
        let mut table = Table::new([cell("field"), right("agree")], "");
        for (name, share) in fields {
            table.row([cell(name), right(self::percent(*share))]);
        }
        output.list::<Value>(&[], || table)?;
    }
    let shown: Vec<&ComparedRow> = rows.iter().filter(|row| all || !row.agree).collect();
    if shown.is_empty() {
        return Ok(());
    }
    output.line("")?;
    let mut table = Table::new([right("row"), cell(""), cell("a"), cell("b")], "");
    for row in shown {
        let mark = if row.agree { "=" } else { "≠" };
        table.row([
            right(show_key(&from_json(&row.key))),
            cell(mark),
            cell(answer(&row.a, &row.differs)),
            cell(answer(&row.b, &row.differs)),
        ]);
    }
    output.list::<Value>(&[], || table)
}

fn sides(names: [&BatchId; 2], a: &AnswerSet, b: &AnswerSet) -> Table {
    let mut table = Table::new([cell(""), cell("a"), cell("b")], "");
    table.row([cell("batch"), cell(names[0]), cell(names[1])]);
    let mut row = |name: &str, value: &dyn Fn(&AnswerSet) -> String| {
        table.row([cell(name), cell(value(a)), cell(value(b))]);
    };
    row("model", &|set| set.models.join(", "));
    row("answers", &|set| set.answers.to_string());
    if a.without_answer + b.without_answer > 0 {
        row("without answer", &|set| set.without_answer.to_string());
    }
    row("cost", &|set| dollars(set.cost));
    row("mean latency", &|set| set.mean_latency_ms.map_or(String::new(), |millis| format!("{millis:.0} ms")));
    table
}

#[expect(clippy::cast_possible_truncation, reason = "a sum of dollars, for people")]
fn dollars(amount: f64) -> String {
    Cost((amount * 1e12).round() as i64).to_string()
}

fn percent(share: f64) -> String {
    let percent = format!("{:.1}", share * 100.0);
    format!("{} %", percent.trim_end_matches(".0"))
}

/// The fields that differ, or the whole answer, or why there is none.
fn answer(one: &ComparedAnswer, differs: &[String]) -> String {
    let text = match (&one.answer, &one.failure) {
        (Some(text), _) => match serde_json::from_str::<Value>(text) {
            Ok(Value::Object(fields)) if !differs.is_empty() => {
                let of = |name: &String| format!("{name}: {}", fields.get(name).unwrap_or(&Value::Null));
                differs.iter().map(of).collect::<Vec<_>>().join(", ")
            }
            _ => text.clone(),
        },
        (None, Some(failure)) => format!("({failure})"),
        (None, None) => "(no answer)".to_owned(),
    };
    summary::one_line(&text, WIDTH)
}

fn csv_lines(comparison: &AnswerComparison) -> impl Iterator<Item = String> + '_ {
    let heading = [
        "key",
        "agree",
        "differs",
        "answer_a",
        "answer_b",
        "failure_a",
        "failure_b",
        "cost_usd_a",
        "cost_usd_b",
        "latency_ms_a",
        "latency_ms_b",
    ];
    let number = |number: Option<f64>| number.map_or(String::new(), |number| number.to_string());
    let millis = |millis: Option<u64>| millis.map_or(String::new(), |millis| millis.to_string());
    let rows = comparison.rows.iter().map(move |ComparedRow { key, agree, differs, a, b }| {
        csv::line([
            show_key(&from_json(key)),
            agree.to_string(),
            differs.join(" "),
            a.answer.clone().unwrap_or_default(),
            b.answer.clone().unwrap_or_default(),
            a.failure.clone().unwrap_or_default(),
            b.failure.clone().unwrap_or_default(),
            number(a.cost),
            number(b.cost),
            millis(a.latency_ms),
            millis(b.latency_ms),
        ])
    });
    std::iter::once(csv::line(heading)).chain(rows)
}
