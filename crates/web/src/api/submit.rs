//! Enqueues one unit, and parses units in requests.

use std::time::Duration;

use axum::http::StatusCode;
use longshore::store::SendResult;
use longshore::unit::{ConcurrencyCap, DedupWindow, Dependencies, OnDuplicate, Weight};
use longshore::{
    Client, Dedup, Error, Kind, NewUnit, Payload, Policy, Priority, QueueName, RetryPolicy, TenantId,
    Timestamp, UnitId, WhenFull,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::auth::Caller;
use crate::endpoints::ApiResult;
use crate::known_fields::known_fields;
use crate::lenient_int::lenient_int;
use crate::problem::Problem;
use crate::request_context::{RequestContext, json_with};
use crate::trace_context::trace_parent;

/// Maximum duration in a policy.
const MAX_DURATION: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// A unit in a request.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnitRequest {
    id: Option<UnitId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<TenantId>,
    queue: Option<QueueName>,
    kind: Kind,
    /// Input of the handler.
    #[schemars(with = "Value")]
    payload: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "lenient_int")]
    priority: Priority,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Deduplication key.
    #[schemars(length(max = 512))]
    key: Option<String>,
    #[serde(default)]
    window: DedupWindow,
    #[serde(default)]
    on_duplicate: OnDuplicate,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_before: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<Timestamp>,
    #[serde(default, deserialize_with = "lenient_int")]
    weight: Weight,
    #[serde(default, deserialize_with = "lenient_int", skip_serializing_if = "Option::is_none")]
    cap: Option<ConcurrencyCap>,
    #[serde(default, deserialize_with = "known_fields")]
    after: Dependencies,
    /// Retry policy; default: its kind's.
    #[serde(default, deserialize_with = "lenient_int", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    policy: Option<Policy>,
    /// A client will wait for its end.
    #[serde(default)]
    awaited: bool,
}

impl UnitRequest {
    /// Builds a request. Without a tenant the server uses the token's.
    pub(crate) fn new(unit: &NewUnit, tenant: Option<TenantId>) -> Result<Self, Error> {
        let text = std::str::from_utf8(unit.payload.as_bytes()).unwrap_or_default();
        // On one line, since units may travel as NDJSON; between JSON tokens a line break is only white
        // space.
        let payload = RawValue::from_string(text.replace(['\n', '\r'], " "))
            .map_err(|error| Error::Invalid(format!("over HTTP a payload must be JSON: {error}")))?;
        let dedup = unit.dedup.clone();
        let (window, on_duplicate) =
            dedup.as_ref().map(|dedup| (dedup.window, dedup.on_duplicate)).unwrap_or_default();
        Ok(Self {
            id: Some(unit.id),
            tenant,
            queue: Some(unit.queue.clone()),
            kind: unit.kind.clone(),
            payload: Some(payload),
            priority: unit.priority,
            key: dedup.map(|dedup| dedup.key),
            window,
            on_duplicate,
            not_before: unit.not_before,
            deadline: unit.deadline,
            weight: unit.weight.clone(),
            cap: unit.cap.clone(),
            after: unit.dependencies.clone(),
            policy: unit.policy.clone(),
            awaited: unit.awaited,
        })
    }

    /// The unit to enqueue, if the caller may send its kind. `default_key` is its deduplication key
    /// if it has none.
    pub(super) async fn permitted_unit(
        self,
        ctx: &RequestContext,
        default_key: Option<String>,
    ) -> Result<NewUnit, Problem> {
        ctx.require_kind(&self.kind).await?;
        self.unit(&ctx.caller, default_key)
    }

    fn unit(self, caller: &Caller, default_key: Option<String>) -> Result<NewUnit, Problem> {
        let tenant = caller.tenant_for_new(self.tenant)?;
        let payload: Payload = match &self.payload {
            Some(payload) => payload.get().as_bytes().into(),
            None => b"null".as_slice().into(),
        };
        let (window, on_duplicate) = (self.window, self.on_duplicate);
        let own_key = self.key.map(|key| Dedup { key, window, on_duplicate });
        let window = DedupWindow::WhileKept;
        let dedup = own_key
            .or_else(|| default_key.map(|key| Dedup { key, window, on_duplicate: OnDuplicate::Existing }));
        let unit = NewUnit {
            id: self.id.unwrap_or_else(UnitId::new),
            tenant,
            queue: self.queue.unwrap_or_default(),
            priority: self.priority,
            dedup,
            not_before: self.not_before,
            deadline: self.deadline,
            weight: self.weight,
            cap: self.cap,
            dependencies: self.after,
            policy: self.policy,
            awaited: self.awaited,
            ..NewUnit::new(self.kind, payload)
        };
        if !unit.queue.admits(&unit.tenant) {
            let detail = format!("queue `{}` is not tenant `{}`'s", unit.queue, unit.tenant);
            return Err(Problem::not_found(detail));
        }
        unit.check()?;
        unit.policy.as_ref().map_or(Ok(()), check_durations)?;
        Ok(unit)
    }
}

/// Rejects durations that a worker's clock cannot represent.
fn check_durations(policy: &Policy) -> Result<(), Problem> {
    let RetryPolicy { base, cap, max_age, .. } = policy.retry;
    let times = [Some(base), Some(cap), max_age, policy.timeout];
    match times.into_iter().flatten().all(|time| time <= MAX_DURATION) {
        true => Ok(()),
        false => Err(Problem::bad_request("a duration in its policy is longer than ten years")),
    }
}

/// The response to enqueueing a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SubmitResponse {
    pub(crate) unit: UnitId,
    pub(crate) status: Status,
}

/// Whether a unit or batch is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Created,
    Existing,
}

pub(super) async fn one(mut ctx: RequestContext) -> ApiResult {
    let request: UnitRequest = ctx.json().await?;
    let mut unit = request.permitted_unit(&ctx, idempotency_key(&ctx)?).await?;
    unit.trace = trace_parent(&ctx.head.headers);
    let when_full = when_full(&ctx)?;
    let sent = client(&ctx).send_many(vec![unit], when_full).await?.pop();
    match sent {
        Some(SendResult::Created(unit)) => {
            json_with(StatusCode::CREATED, &SubmitResponse { unit, status: Status::Created })
        }
        Some(SendResult::Existing(unit)) => {
            json_with(StatusCode::OK, &SubmitResponse { unit, status: Status::Existing })
        }
        Some(SendResult::Rejected(refusal)) => Err(Problem::from_refusal(&refusal)),
        None => Err(Problem::unavailable("the store returned no result")),
    }
}

pub(super) fn client(ctx: &RequestContext) -> Client {
    let scope = ctx.caller.scope.clone();
    let client = Client::scoped(ctx.app.store.clone(), scope).with_rights(ctx.caller.rights());
    client.with_retry_timeout(ctx.app.limits.time)
}

/// What to do when the queue is full.
pub(super) fn when_full(ctx: &RequestContext) -> Result<WhenFull, Problem> {
    Ok(match ctx.query::<u64>("room")? {
        None | Some(0) => WhenFull::Reject,
        Some(seconds) => WhenFull::WaitFor(Duration::from_secs(seconds)),
    })
}

/// The deduplication key in the header, as payment APIs have it.
pub(super) fn idempotency_key(ctx: &RequestContext) -> Result<Option<String>, Problem> {
    let Some(given) = ctx.head.headers.get("idempotency-key") else { return Ok(None) };
    let key = given.to_str().map(str::trim).unwrap_or_default();
    match key.is_empty() || key.len() > 256 {
        true => Err(Problem::bad_request("`Idempotency-Key` is text of 1 to 256 characters")),
        false => Ok(Some(key.to_owned())),
    }
}
