//! Reports rows that ended outside of POST to POST, so that the rows' database knows of every row that
//! was not done: rows that killed their workers, that were cancelled, with SQL that the database rejected.
//!
//! Their units have ended, and the batch's counts stay as they are. POST's statements commit with the
//! completion unit's checkpoint, which has the position in the list of ended rows, if the rows are in
//! the store's database: exactly once. Elsewhere they run before it, at least once, with the same
//! `:run_key`. A unit's own record says whether POST has returned FAIL for it in its generation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longshore::store::{CheckpointRequest, UnitFilter};
use longshore::{
    BatchId, CheckpointError, Context, Effect, Error, Kind, Payload, Scope, Unit, UnitId, UnitState, Verdict,
};
use longshore_ai::Cost;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CompletionResult, batch_error};
use crate::checkpoint::Checkpoint;
use crate::definition::{Post, ROW_KIND};
use crate::handler::RowInput;
use crate::pre_post::{Apply, ApplyError, ReplyError, RowReply, RowRun, run_key};
use crate::rows::RowSource;
use crate::sql_json::from_json;

/// Rows with statements that commit together.
const PAGE: u32 = 50;

/// How far a generation's rows were reported: the completion unit's checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// The position in [`ENDED`]; past its end, all rows were reported.
    state: usize,
    /// The cursor of the page.
    after: Option<String>,
    /// Units of the page that were reported one by one, because the page as a whole was rejected.
    handled: Vec<UnitId>,
    /// How often POST failed for the next of them, not because of the row.
    #[serde(default)]
    tries: u32,
    /// The sums so far.
    pub(super) result: CompletionResult,
}

/// The states in which a row has ended without being done.
const ENDED: [UnitState; 2] = [UnitState::Failed, UnitState::Cancelled];

/// How often POST may fail for a row, not because of the row, and the delay after each time.
const MAX_RETRIES: u32 = 5;
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// The rows of a batch that ended in one of its generations.
pub(super) struct EndedRows<'a> {
    pub(super) context: &'a Context,
    pub(super) batch: &'a BatchId,
    pub(super) generation: u32,
    /// Whether POST's SQL can commit with a checkpoint.
    pub(super) in_store: bool,
    pub(super) source: Arc<dyn RowSource>,
    pub(super) apply: Arc<dyn Apply>,
}

/// Why statements were not run.
enum ReportError {
    /// The row's own: another row may succeed.
    Rejected(String),
    /// Not the row's own: the same row may succeed later.
    Retry(String),
    /// The run ends.
    Stop(Verdict),
}

/// Whether POST does anything for a row that failed.
pub(super) fn has_statements(post: &Post) -> bool {
    match post {
        Post::Sql(post) => !post.always.is_empty() || !post.fail.is_empty(),
        Post::Code(_) | Post::Command(_) => true,
    }
}

impl EndedRows<'_> {
    /// Reports all rows, from where an earlier run stopped.
    pub(super) async fn report(&self) -> Result<Progress, Verdict> {
        let stored = self.context.checkpoint().map(Payload::parse::<Progress>).transpose();
        let mut progress =
            stored.map_err(|error| Verdict::retry("bad-checkpoint", error))?.unwrap_or_default();
        while let Some(state) = ENDED.get(progress.state) {
            if self.context.cancelled().is_cancelled() {
                return Err(Verdict::retry("interrupted", "the run was cancelled"));
            }
            let (units, next) = self.page(*state, progress.after.as_deref()).await.map_err(batch_error)?;
            progress = self.report_page(units, next, progress).await?;
        }
        if let Some(reason) = &progress.result.reason {
            let (batch, rows) = (self.batch, progress.result.unreported);
            tracing::warn!(%batch, rows, reason, "POST does not know of these rows, which were not done");
        }
        Ok(progress)
    }

    /// The rows of a page that POST does not know of, and the cursor of the next page.
    async fn page(
        &self,
        state: UnitState,
        after: Option<&str>,
    ) -> longshore::Result<(Vec<Unit>, Option<String>)> {
        let store = self.context.client().store();
        let scope = Scope::Tenant(self.context.unit().tenant.clone());
        let kind = Kind::new(ROW_KIND).map_err(|error| Error::Invalid(error.to_string()))?;
        let (state, kind, batch) = (Some(state), Some(kind), Some(self.batch.clone()));
        let filter = UnitFilter { state, kind, batch, queue: None };
        let page = store.units(&scope, &filter, after, PAGE).await?;
        let mut units = Vec::new();
        for listed in page.items {
            if listed.batch_generation != self.generation {
                continue;
            }
            // Lists carry no checkpoints. The row may have been retried or pruned since.
            match store.unit(&scope, listed.id).await {
                Ok(unit) if unit.state.is_final() && !is_reported(&unit) => units.push(unit),
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((units, page.next))
    }

    /// Reports a page in one commit, or row by row if that is rejected.
    async fn report_page(
        &self,
        mut units: Vec<Unit>,
        next: Option<String>,
        progress: Progress,
    ) -> Result<Progress, Verdict> {
        units.retain(|unit| !progress.handled.contains(&unit.id));
        let mut end = progress.clone();
        end.handled.clear();
        end.state += usize::from(next.is_none());
        end.after = next;
        if self.in_store && progress.handled.is_empty() {
            let mut all = end.clone();
            all.result.reported += units.len() as u64;
            match self.report_units(&units, &all).await {
                Ok(()) => return Ok(all),
                Err(ReportError::Rejected(_) | ReportError::Retry(_)) => {}
                Err(ReportError::Stop(verdict)) => return Err(verdict),
            }
        }
        let mut progress = progress;
        for unit in units {
            let mut told = Progress { tries: 0, ..progress.clone() };
            told.handled.push(unit.id);
            told.result.reported += 1;
            match self.report_units(&[unit], &told).await {
                Ok(()) => progress = told,
                Err(ReportError::Stop(verdict)) => return Err(verdict),
                Err(ReportError::Retry(_)) if progress.tries < MAX_RETRIES => {
                    progress.tries += 1;
                    self.save(&progress, Vec::new()).await.map_err(ReportError::into_verdict)?;
                    return Err(Verdict::Snooze(RETRY_DELAY));
                }
                Err(ReportError::Rejected(why) | ReportError::Retry(why)) => {
                    (progress.handled, progress.tries) = (told.handled, 0);
                    progress.result.unreported += 1;
                    progress.result.reason.get_or_insert(why);
                }
            }
        }
        end.result = progress.result;
        self.save(&end, Vec::new()).await.map_err(ReportError::into_verdict)?;
        Ok(end)
    }

    /// Runs POST's statements for these rows and saves `progress`.
    async fn report_units(&self, units: &[Unit], progress: &Progress) -> Result<(), ReportError> {
        let mut effects = Vec::new();
        for unit in units {
            effects.extend(self.effects(unit).await?);
        }
        if !self.in_store && !effects.is_empty() {
            let effects = std::mem::take(&mut effects);
            self.source.apply(&effects).await.map_err(|error| match error.puts_rows_off() {
                true => ReportError::Stop(Verdict::Snooze(self.source.retry_delay())),
                false => ReportError::Rejected(error.to_string()),
            })?;
        }
        self.save(progress, effects).await
    }

    /// POST's statements for a row.
    async fn effects(&self, unit: &Unit) -> Result<Vec<Effect>, ReportError> {
        let rejected = |why: String| ReportError::Rejected(why);
        let input = unit.payload.parse::<RowInput>().map_err(|error| rejected(error.to_string()))?;
        let key = from_json(&input.key);
        let worker = self.context.session().to_string();
        let row = RowRun {
            batch: self.batch,
            unit: unit.id,
            key: &key,
            attempt: unit.attempt,
            generation: unit.generation,
            run_key: run_key(unit.id, unit.generation, "end"),
            is_last_attempt: true,
            has_ended: true,
            answers: answers(unit),
            worker: &worker,
            source: &*self.source,
            read_until: None,
        };
        match self.apply.apply(&row, &reply(unit)).await {
            Ok(applied) => Ok(applied.effects),
            Err(ApplyError::Failed(why)) => Err(ReportError::Rejected(why)),
            Err(ApplyError::Retry(why)) => Err(ReportError::Retry(why)),
            Err(ApplyError::Snooze { after, .. }) => Err(ReportError::Stop(Verdict::Snooze(after))),
        }
    }

    async fn save(&self, progress: &Progress, effects: Vec<Effect>) -> Result<(), ReportError> {
        let state = Payload::json(progress).map_err(|error| ReportError::Rejected(error.to_string()))?;
        let request = CheckpointRequest { effects, ..CheckpointRequest::new(state) };
        self.context.save_checkpoint_with(request).await.map_err(|error| match error {
            CheckpointError::Store(Error::EffectFailed(failure)) => ReportError::Rejected(failure.message),
            CheckpointError::Store(error) => ReportError::Stop(batch_error(error)),
            CheckpointError::LeaseLost => ReportError::Stop(Verdict::retry("lease", "the lease is lost")),
            error => ReportError::Stop(Verdict::retry("checkpoint", error)),
        })
    }
}

impl ReportError {
    fn into_verdict(self) -> Verdict {
        match self {
            Self::Rejected(why) | Self::Retry(why) => Verdict::fail("checkpoint", why),
            Self::Stop(verdict) => verdict,
        }
    }
}

/// Whether POST returned FAIL for the row in its generation.
fn is_reported(unit: &Unit) -> bool {
    Checkpoint::from_unit(unit).is_ok_and(|checkpoint| checkpoint.reported == Some(unit.generation))
}

/// The answers of the steps that the row had completed.
fn answers(unit: &Unit) -> BTreeMap<String, Value> {
    let steps = Checkpoint::from_unit(unit).map(|kept| kept.steps).unwrap_or_default();
    steps.into_iter().map(|step| (step.name, step.answer)).collect()
}

/// What POST receives: why the row ended, and the answer that it had.
fn reply(unit: &Unit) -> RowReply {
    let kept = Checkpoint::from_unit(unit).ok().filter(|kept| !kept.rejected);
    let (answer, cost) = kept.map_or((None, None), |kept| (kept.answer, kept.cost));
    let json = answer.as_ref().and_then(|answer| serde_json::from_str(&answer.text).ok());
    let (code, message) = match (&unit.failure, unit.state) {
        (Some(failure), UnitState::Failed) => (failure.code.clone(), failure.message.clone()),
        _ => ("cancelled".to_owned(), "the row was cancelled".to_owned()),
    };
    let error = ReplyError {
        code: code.to_ascii_uppercase().replace('-', "_"),
        message,
        retryable: false,
        retry_after: None,
    };
    RowReply { answer, json, error: Some(error), cost: cost.unwrap_or(Cost(0)) }
}
