//! Units: list, show, wait, cancel, retry.

use std::sync::Arc;
use std::time::Duration;

use longshore::store::{Page, UnitAction, UnitFailure, UnitFilter, UnitSelection};
use longshore::unit::Payload;
use longshore::{Client, Unit, UnitId, WaitError};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::auth::Caller;
use crate::endpoints::ApiResult;
use crate::problem::Problem;
use crate::request_context::{RequestContext, json};

/// A unit with its failures.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct UnitView {
    /// The unit.
    #[serde(flatten)]
    pub unit: Unit,
    /// Whether payload, checkpoint and result are omitted.
    pub masked: bool,
    /// Its failed runs, oldest first; omitted in lists.
    pub failures: Vec<UnitFailure>,
}

/// Parsed twice: the payload must keep its exact text, which `flatten` cannot do.
impl<'de> Deserialize<'de> for UnitView {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct ViewFields {
            masked: bool,
            failures: Vec<UnitFailure>,
        }
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let read = || {
            let ViewFields { masked, failures } = serde_json::from_str(text.get())?;
            Ok(Self { unit: serde_json::from_str(text.get())?, masked, failures })
        };
        read().map_err(|error: serde_json::Error| serde::de::Error::custom(error))
    }
}

impl UnitView {
    fn new(mut unit: Unit, failures: Vec<UnitFailure>, caller: &Caller) -> Self {
        let masked = !caller.can_read(&unit.tenant);
        if masked {
            unit.payload = Payload::from(serde_json::Value::Null);
            (unit.checkpoint, unit.result, unit.key) = (None, None, None);
        }
        Self { unit, masked, failures }
    }

    /// A unit in a list, without its payload.
    fn listed(mut unit: Unit, caller: &Caller) -> Self {
        unit.payload = Payload::from(serde_json::Value::Null);
        if !caller.can_read(&unit.tenant) {
            unit.key = None;
        }
        Self { unit, masked: true, failures: Vec::new() }
    }
}

pub(super) async fn list(ctx: RequestContext) -> ApiResult {
    let filter = UnitFilter {
        state: ctx.query("state")?,
        queue: ctx.query("queue")?,
        kind: ctx.query("kind")?,
        batch: ctx.query("batch")?,
    };
    let (scope, limit) = (ctx.scope()?, ctx.limit()?);
    let page = ctx.app.store.units(&scope, &filter, ctx.after(), limit).await?;
    let listed = |unit: Unit| UnitView::listed(unit, &ctx.caller);
    let items: Vec<UnitView> = page.items.into_iter().map(listed).collect();
    json(&Page { items, next: page.next })
}

pub(super) async fn show(ctx: RequestContext) -> ApiResult {
    let id: UnitId = unit_id(&ctx)?;
    if let Some(seconds @ 1..) = ctx.query::<u64>("wait")? {
        wait_for_end(&ctx, id, Duration::from_secs(seconds)).await?;
    }
    let slot = Arc::clone(&ctx.slot);
    let reading = async move {
        let unit = ctx.app.store.unit(&ctx.caller.scope, id).await?;
        let failures = ctx.app.store.failures(&ctx.caller.scope, id).await?;
        json(&UnitView::new(unit, failures, &ctx.caller))
    };
    slot.read(reading).await
}

/// Waits until a unit has ended or the time is over. The unit is dropped and read again: many clients may
/// wait for it, and it may be large.
async fn wait_for_end(ctx: &RequestContext, id: UnitId, limit: Duration) -> Result<(), Problem> {
    let client = Client::scoped(ctx.app.store.clone(), ctx.caller.scope.clone());
    match client.with_read_permits(Arc::clone(ctx.slot.reads())).wait(id, Some(limit)).await {
        Ok(_) | Err(WaitError::TimedOut(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn unit_id(ctx: &RequestContext) -> Result<UnitId, Problem> {
    ctx.path("unit").map_err(|_| Problem::bad_request("a unit's id is a UUID"))
}

pub(super) async fn cancel(ctx: RequestContext) -> ApiResult {
    operate(ctx, UnitAction::Cancel).await
}

pub(super) async fn retry(ctx: RequestContext) -> ApiResult {
    operate(ctx, UnitAction::Retry).await
}

async fn operate(ctx: RequestContext, action: UnitAction) -> ApiResult {
    let id = unit_id(&ctx)?;
    let (store, scope) = (&ctx.app.store, &ctx.caller.scope);
    let tenant = store.unit(scope, id).await?.tenant;
    ctx.audit(Some(&tenant), id, "").await?;
    let done = store.apply_unit_action(scope, UnitSelection::Ids(vec![id]), action).await?;
    json(&done)
}
