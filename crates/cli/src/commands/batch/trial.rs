//! Trials: `batch run` with `--sample`, `--no-post` or a small `--limit`, which shows all answers and what the rest would
//! cost; and `--continue`, which runs the rest.

use anyhow::anyhow;
use longshore::{Batch, BatchStatus, Timestamp};
use longshore_ai::Cost;
use longshore_batch::definition::{RowSample, RowStep, Trial};
use longshore_batch::row_enqueuer::definition_of;
use longshore_batch::row_listing::{self, ListedRow};
use longshore_batch::{Definition, RowSource};

use super::context::BatchContext;
use super::run::params;
use super::summary;
use crate::args::batch::BatchRunArgs;
use crate::error::WithHint;

/// The most rows of a trial: its answers are kept in the store.
const MAX_KEPT: u64 = 10_000;

/// The most answers that are printed.
const MAX_SHOWN: u64 = 100;

/// Makes the definition a trial, or one that continues after trials, as the arguments say.
pub(super) async fn prepare(
    definition: &mut Definition,
    typed: &BatchRunArgs,
    source: &dyn RowSource,
    context: &BatchContext,
) -> anyhow::Result<()> {
    let most = typed.sample.or(typed.file.limit);
    if typed.no_post && most.is_none_or(|rows| rows > MAX_KEPT) {
        return Err(anyhow!("--no-post keeps all answers in the store, so it needs a limit"))
            .hint(format!("--sample 50 takes 50 rows, spread over all; at most {MAX_KEPT}"));
    }
    if (typed.no_post || typed.sample.is_some()) && definition.ai().is_none() {
        return Err(anyhow!("the rows of this batch get mail: there are no answers to look at"))
            .hint("`batch run --dry-run` shows the messages, and --limit sends a few");
    }
    if let Some(rows) = typed.sample {
        let of = source.count(&definition.candidates).await?;
        definition.candidates.sample = Some(RowSample { rows, of });
    }
    match (typed.no_post, typed.sample) {
        (true, _) => definition.make_trial(Trial::AskOnly),
        (false, Some(_)) => definition.make_trial(Trial::Apply),
        (false, None) => {
            if let (RowStep::Ai(ai), Some(1..=MAX_SHOWN)) = (&mut definition.step, typed.file.limit) {
                ai.keep_answers = true;
            }
        }
    }
    if typed.r#continue {
        definition.candidates.skip_since = Some(first_trial(definition, context).await?);
    }
    Ok(())
}

/// When the first of the latest trials of this file began. Rows that ended since are done.
async fn first_trial(definition: &Definition, context: &BatchContext) -> anyhow::Result<Timestamp> {
    let mut batches = context.batches(&BatchStatus::ALL).await?;
    batches.retain(|batch| batch.kind == definition.kind && batch.tenant == definition.tenant);
    batches.sort_by_key(|batch| std::cmp::Reverse(batch.initiated_at));
    let mut first = None;
    for batch in batches {
        let Ok(stored) = definition_of(&context.client, &batch.id).await else { continue };
        let same_file = stored.source == definition.source && params(&stored) == params(definition);
        let is_limited = stored.candidates.limit != definition.candidates.limit;
        match stored.trial {
            _ if !same_file => {}
            Some(Trial::AskOnly) => {}
            Some(Trial::Apply) => first = Some(finished(&batch, context).await?),
            None if is_limited => first = Some(finished(&batch, context).await?),
            None => break,
        }
    }
    first
        .ok_or_else(|| anyhow!("there is no trial of this file that could be continued"))
        .hint("`batch run FILE --sample 20` is one; without --continue all candidates are run")
}

/// When a trial began; an error while it has not ended, or if its rows are not known any more.
async fn finished(batch: &Batch, context: &BatchContext) -> anyhow::Result<Timestamp> {
    let Batch { id, status, .. } = batch;
    if !status.is_final() {
        return Err(anyhow!("the trial `{id}` is {status}: it has not ended"))
            .hint(format!("run it to its end, or `longshore batch cancel {id}`"));
    }
    let rows = row_listing::count_ended(&*context.store, context.client.scope(), id).await?;
    if rows < batch.counts.finished() {
        return Err(anyhow!("rows of the trial `{id}` were pruned: --continue would run them again")).hint(
            "leave them out by the candidates' SQL and run without --continue; [keep] done is how long rows are kept",
        );
    }
    Ok(batch.initiated_at)
}

/// All answers of a small batch that keeps them, and what it tells of all candidates.
pub(super) struct TrialResult {
    pub(super) rows: Vec<ListedRow>,
    /// The number of all candidates, and what they would cost.
    pub(super) all: Option<(u64, Cost)>,
    /// What runs the rest.
    pub(super) hint: String,
}

impl TrialResult {
    /// `None` if the batch keeps no answers, or too many to be printed.
    pub(super) async fn of(batch: &Batch, context: &BatchContext) -> anyhow::Result<Option<Self>> {
        let Ok(definition) = definition_of(&context.client, &batch.id).await else { return Ok(None) };
        if !definition.ai().is_some_and(|ai| ai.keep_answers) {
            return Ok(None);
        }
        let scope = context.client.scope();
        let Some(rows) = row_listing::all_rows(&*context.store, scope, &batch.id, MAX_SHOWN).await? else {
            return Ok(None);
        };
        let ended = i128::from(batch.counts.finished().max(1));
        let all = definition.candidates.sample.map(|sample| {
            let cost = i128::from(summary::cost(batch).0) * i128::from(sample.of) / ended;
            (sample.of, Cost(i64::try_from(cost).unwrap_or(i64::MAX)))
        });
        let file = &definition.source;
        let hint = match definition.trial {
            Some(Trial::AskOnly) => {
                let (url, id) = (&context.url, &batch.id);
                format!("longshore --store {url} batch compare {id} OTHER compares two such runs")
            }
            _ => format!("longshore batch run {file} --continue runs the rest"),
        };
        Ok(Some(Self { rows, all, hint }))
    }
}
