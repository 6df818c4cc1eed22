//! Units: sent, one or many; shown, waited for, listed, steered.

use std::time::Duration;

use longshore::store::{Operated, Page, Refusal, Sent, UnitFilter};
use longshore::{NewUnit, Scope, TenantId, Unit, UnitId};

use super::call::{Ask, written};
use super::{ApiClient, ApiError, ShownUnit, Tally};
use crate::api::submit::{Became, Status, Typed};

/// Units of one request: as many as the server takes into its store together.
const CHUNK: usize = 500;
/// Bytes of one request, unless a single unit has more.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;
impl ApiClient {
    /// Sends a unit, and waits up to `room` if its queue is full. One of the default tenant is the
    /// token's own. Sent again while the server is away: it is recognised by its id.
    pub async fn submit(&self, unit: &NewUnit, room: Option<Duration>) -> Result<Sent, ApiError> {
        self.submit_as(unit, whose(unit, &Scope::All), room).await
    }

    pub(super) async fn submit_as(
        &self,
        unit: &NewUnit,
        tenant: Option<TenantId>,
        room: Option<Duration>,
    ) -> Result<Sent, ApiError> {
        let body = written(&self.url, &self.typed(unit, tenant)?)?;
        let ask = Ask::new("submitUnit").with("room", room.map(|room| room.as_secs()));
        let ask = ask.json(&body).repeatable().waiting(room.unwrap_or_default());
        match self.ask::<Became>(ask).await {
            Ok(Became { unit, status: Status::Created }) => Ok(Sent::Created(unit)),
            Ok(Became { unit, status: Status::Existing }) => Ok(Sent::Existing(unit)),
            Err(error) => refused(error).map(Sent::Refused),
        }
    }

    /// Sends units as lines, a chunk at a time, and no more before that is in: the server's pace is
    /// the sender's. One answer each, in their order. What comes after a unit that found no room is not
    /// tried, and has the same answer.
    pub async fn submit_many(&self, units: &[NewUnit]) -> Result<Vec<Sent>, ApiError> {
        self.submit_many_as(units, &Scope::All).await
    }

    pub(super) async fn submit_many_as(
        &self,
        units: &[NewUnit],
        scope: &Scope,
    ) -> Result<Vec<Sent>, ApiError> {
        let mut answers: Vec<Sent> = Vec::with_capacity(units.len());
        while answers.len() < units.len() {
            let left = &units[answers.len()..];
            let stopped = self.chunk(left, scope, &mut answers).await?;
            if let Some(refusal) = stopped.filter(Refusal::keeps_chunk_out) {
                answers.resize(units.len(), Sent::Refused(refusal));
            }
        }
        Ok(answers)
    }

    /// Sends the first of `units`, and adds what became of them; why the server stopped, if it did.
    async fn chunk(
        &self,
        units: &[NewUnit],
        scope: &Scope,
        answers: &mut Vec<Sent>,
    ) -> Result<Option<Refusal>, ApiError> {
        let mut lines = Vec::new();
        let mut count = 0;
        for unit in units.iter().take(CHUNK) {
            let line = written(&self.url, &self.typed(unit, whose(unit, scope))?)?;
            if count > 0 && lines.len() + line.len() > CHUNK_BYTES {
                break;
            }
            lines.extend_from_slice(&line);
            lines.push(b'\n');
            count += 1;
        }
        let ask = Ask::new("submitUnits").lines(&lines).repeatable();
        let (tally, refusal) = match self.ask::<Tally>(ask).await {
            Ok(tally) => (tally, None),
            Err(error) => halted(error).map(|(tally, refusal)| (tally, Some(refusal)))?,
        };
        let read = usize::try_from(tally.lines).unwrap_or(count).min(count);
        for (line, unit) in (1..).zip(&units[..read]) {
            answers.push(self.became(unit, line, &tally, refusal.as_ref(), scope).await?);
        }
        Ok(refusal)
    }

    /// What became of one line. The tally tells the reason of the first refusal only: whoever was
    /// refused for something else is asked about by itself.
    async fn became(
        &self,
        unit: &NewUnit,
        line: u64,
        tally: &Tally,
        refusal: Option<&Refusal>,
        scope: &Scope,
    ) -> Result<Sent, ApiError> {
        if let Some(found) = tally.recognised.iter().find(|known| known.line == line) {
            return Ok(Sent::Existing(found.unit));
        }
        match refusal.filter(|_| tally.refused.contains(&line)) {
            None => Ok(Sent::Created(unit.id)),
            Some(full) if full.keeps_chunk_out() => Ok(Sent::Refused(full.clone())),
            Some(_) => self.submit_as(unit, whose(unit, scope), None).await,
        }
    }

    pub(super) fn typed(
        &self,
        unit: &NewUnit,
        tenant: Option<TenantId>,
    ) -> Result<Typed, ApiError> {
        Typed::of(unit, tenant).map_err(|error| ApiError::Unfit { reason: error.to_string() })
    }

    /// A unit with what it carries. With `wait`, once it has ended or that is over.
    pub async fn unit(&self, id: UnitId, wait: Option<Duration>) -> Result<ShownUnit, ApiError> {
        let ask = Ask::new("showUnit").of(id).with("wait", wait.map(|wait| wait.as_secs()));
        self.ask(ask.repeatable().waiting(wait.unwrap_or_default())).await
    }

    /// Units, newest first, without what they carry.
    pub async fn units(
        &self,
        tenant: Option<&TenantId>,
        filter: &UnitFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Unit>, ApiError> {
        let ask = Ask::new("listUnits").with("state", filter.state);
        let ask = ask.with("queue", filter.queue.as_ref()).with("kind", filter.kind.as_ref());
        let ask = ask.with("batch", filter.batch.as_ref()).with("tenant", tenant);
        let page: Page<ShownUnit> = self.list(ask, after, limit).await?;
        let items = page.items.into_iter().map(|shown| shown.unit).collect();
        Ok(Page { items, next: page.next })
    }

    /// Ends a unit if it waits, asks it to stop if it runs.
    pub async fn cancel_unit(&self, id: UnitId) -> Result<Operated, ApiError> {
        self.ask(Ask::new("cancelUnit").of(id)).await
    }

    /// Runs a unit again, with fresh attempts.
    pub async fn retry_unit(&self, id: UnitId) -> Result<Operated, ApiError> {
        self.ask(Ask::new("retryUnit").of(id)).await
    }
}

/// The tenant that is named: where nobody chose one, the token's own is meant.
pub(super) fn whose(unit: &NewUnit, scope: &Scope) -> Option<TenantId> {
    let unsaid = *scope == Scope::All && unit.tenant == TenantId::default();
    (!unsaid).then(|| unit.tenant.clone())
}

/// Why a unit was not taken, if that is what went wrong.
fn refused(error: ApiError) -> Result<Refusal, ApiError> {
    match error {
        ApiError::Problem { problem, retry_after } => match problem.refusal.clone() {
            Some(refusal) => Ok(refusal),
            None => Err(ApiError::Problem { problem, retry_after }),
        },
        other => Err(other),
    }
}

/// How far a stream came, and which refusal stopped it, if that is what went wrong.
fn halted(error: ApiError) -> Result<(Tally, Refusal), ApiError> {
    let told = match &error {
        ApiError::Problem { problem, .. } => problem.so_far.clone().zip(problem.refusal.clone()),
        _ => None,
    };
    let read =
        told.and_then(|(so_far, refusal)| Some((serde_json::from_value(so_far).ok()?, refusal)));
    read.ok_or(error)
}
