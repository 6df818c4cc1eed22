//! `batch run --check`: asks about the rows of `[[expect]]`, and scores the answers before the batch runs.

use std::time::Duration;

use anyhow::anyhow;
use longshore::batch::BatchAction;
use longshore::{BatchId, BatchStatus};
use longshore_batch::answers::{CheckScore, WrongAnswer};
use longshore_batch::definition::Trial;
use longshore_batch::row_listing;
use serde::Serialize;
use serde_json::Value;

use super::context::{BatchContext, CheckedBatch};
use super::run::open_batch;
use super::run_all::SHUTDOWN_TIMEOUT;
use super::runner::run_to_end;
use super::summary;
use crate::args::batch::BatchFileArgs;
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// The result as JSON.
#[derive(Serialize)]
struct CheckResult<'a> {
    check: &'a CheckScore,
    batch: &'a BatchId,
    cost: f64,
}

/// Scores the golden set. An exit code if the batch must not run.
pub(super) async fn run(
    checked: &CheckedBatch,
    context: &BatchContext,
    file: &BatchFileArgs,
    settings: &Settings,
) -> anyhow::Result<Option<ExitCode>> {
    let missing = || anyhow!("--check needs rows with known answers, and {} has none", file.path.display());
    let set = checked.golden_set.as_ref().ok_or_else(missing);
    let set = set.hint("write [[expect]] with `key = …` and `answer = { field = … }`, one for each row")?;
    let mut definition = checked.definition.clone();
    definition.make_trial(Trial::AskOnly);
    definition.threshold = None;
    definition.candidates.limit = None;
    definition.candidates.keys = Some(set.rows.iter().map(|row| row.key.clone()).collect());
    let workers = definition.workers;
    let fill = open_batch(definition, checked, context, "check of [[expect]]").await?;
    let id = fill.batch().id.clone();
    let mut runs = run_to_end(context, vec![fill], Some(workers), settings).await?;
    let Some(run) = runs.pop() else {
        give_up(context, &id).await;
        return Ok(Some(ExitCode::Interrupted));
    };
    let batch = run?.batch;
    if batch.status != BatchStatus::Complete {
        give_up(context, &id).await;
        close(context).await;
        return Err(anyhow!("the check did not end: batch `{id}` is {}", batch.status))
            .hint(batch.reason.unwrap_or_else(|| "run the command again".to_owned()));
    }
    let rows = row_listing::all_rows(&*context.store, context.client.scope(), &id, u64::MAX).await?;
    let score = CheckScore::of(set, &rows.unwrap_or_default());
    print(&score, &batch, settings)?;
    if score.passed {
        return Ok(None);
    }
    close(context).await;
    let CheckScore { rows, right, .. } = score;
    let pass = percent(score.pass);
    Err(anyhow!("the batch was not run: {right} of {rows} known answers are right, and {pass} are needed"))
        .hint(format!(
            "longshore --store {} batch rows {id} --format ndjson shows the answers; [check] pass sets what is needed",
            context.url
        ))
}

/// Cancels a check that did not end: other workers would ask about its rows, and the next check asks about all of them.
async fn give_up(context: &BatchContext, id: &BatchId) {
    let cancelled = context.store.apply_batch_action(context.client.scope(), id, BatchAction::Cancel).await;
    if let Err(error) = cancelled {
        tracing::warn!(batch = %id, %error, "the check cannot be cancelled");
    }
}

async fn close(context: &BatchContext) {
    let limit: Duration = SHUTDOWN_TIMEOUT;
    context.commands.close(limit).await;
}

fn percent(share: f64) -> String {
    let percent = format!("{:.1}", share * 100.0);
    format!("{} %", percent.trim_end_matches(".0"))
}

fn print(score: &CheckScore, batch: &longshore::Batch, settings: &Settings) -> anyhow::Result<()> {
    let output = settings.output;
    if output.is_json() {
        return output.json(&CheckResult {
            check: score,
            batch: &batch.id,
            cost: summary::cost(batch).dollars(),
        });
    }
    if output.is_quiet() {
        return Ok(());
    }
    let cost = summary::format_cost(batch);
    let cost = if cost.is_empty() { cost } else { format!(" for {cost}") };
    output.line(format!("check: {} of {} known answers are right{cost}", score.right, score.rows))?;
    if score.wrong.is_empty() {
        return Ok(());
    }
    let mut table = Table::new([right("row"), cell("field"), cell("expected"), cell("answered")], "");
    for WrongAnswer { key, field, expected, found } in &score.wrong {
        let field = field.as_deref().unwrap_or("(no answer)");
        table.row([right(key), cell(field), cell(short(expected)), cell(short(found))]);
    }
    output.list::<Value>(&[], || table)
}

fn short(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    summary::one_line(&text, 60)
}
