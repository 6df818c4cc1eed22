//! Sending one unit, and what a unit looks like when it comes.

use std::time::Duration;

use axum::http::StatusCode;
use longshore::store::Sent;
use longshore::unit::{After, Cap, DedupWindow, OnDuplicate, Weight};
use longshore::{
    Client, Dedup, Error, Kind, NewUnit, Payload, Policy, Priority, QueueName, RetryPolicy,
    TenantId, Timestamp, UnitId, WhenFull,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::call::{Call, json_with};
use crate::door::Caller;
use crate::problem::Problem;
use crate::table::Answer;
use crate::traces::origin;
use crate::whole::whole;

/// Longest time that a policy may name.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// A unit as it comes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Typed {
    id: Option<UnitId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<TenantId>,
    queue: Option<QueueName>,
    kind: Kind,
    payload: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "whole")]
    priority: Priority,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default)]
    window: DedupWindow,
    #[serde(default)]
    on_duplicate: OnDuplicate,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_before: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<Timestamp>,
    #[serde(default, deserialize_with = "whole")]
    weight: Weight,
    #[serde(default, deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    cap: Option<Cap>,
    #[serde(default)]
    after: After,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Policy>,
    #[serde(default)]
    awaited: bool,
}

impl Typed {
    /// A unit as it goes out. Without a tenant it will be the token's own.
    pub(crate) fn of(unit: &NewUnit, tenant: Option<TenantId>) -> Result<Self, Error> {
        let text = std::str::from_utf8(unit.payload.as_bytes()).unwrap_or_default();
        // As one line, since units may travel as lines: in JSON an end of line is but a space.
        let payload = RawValue::from_string(text.replace(['\n', '\r'], " "))
            .map_err(|error| Error::Invalid(format!("over HTTP a payload is JSON: {error}")))?;
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
            after: unit.after.clone(),
            policy: unit.policy.clone(),
            awaited: unit.awaited,
        })
    }

    /// The unit that is meant. `recognised` is the key that it has if it names none.
    pub(super) fn unit(
        self,
        caller: &Caller,
        recognised: Option<String>,
    ) -> Result<NewUnit, Problem> {
        let tenant = caller.sends_as(self.tenant)?;
        let payload: Payload = match &self.payload {
            Some(payload) => payload.get().as_bytes().into(),
            None => b"null".as_slice().into(),
        };
        let (window, on_duplicate) = (self.window, self.on_duplicate);
        let named = self.key.map(|key| Dedup { key, window, on_duplicate });
        let window = DedupWindow::WhileKept;
        let dedup = named.or_else(|| {
            recognised.map(|key| Dedup { key, window, on_duplicate: OnDuplicate::Existing })
        });
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
            after: self.after,
            policy: self.policy,
            awaited: self.awaited,
            ..NewUnit::new(self.kind, payload)
        };
        if !unit.queue.admits(&unit.tenant) {
            let words = format!("queue `{}` is not tenant `{}`'s", unit.queue, unit.tenant);
            return Err(Problem::not_found(words));
        }
        unit.check()?;
        unit.policy.as_ref().map_or(Ok(()), sensible)?;
        Ok(unit)
    }
}

/// Refuses times that no clock of a worker could be set to.
fn sensible(policy: &Policy) -> Result<(), Problem> {
    let RetryPolicy { base, cap, max_age, .. } = policy.retry;
    let times = [Some(base), Some(cap), max_age, policy.timeout];
    match times.into_iter().flatten().all(|time| time <= LONGEST) {
        true => Ok(()),
        false => Err(Problem::bad("a time of its policy is longer than ten years")),
    }
}

/// What became of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Became {
    pub(crate) unit: UnitId,
    pub(crate) status: Status,
}

/// Whether a unit is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Created,
    Existing,
}

pub(super) async fn one(mut call: Call) -> Answer {
    let typed: Typed = call.json().await?;
    let mut unit = typed.unit(&call.caller, idempotency_key(&call)?)?;
    unit.trace = origin(&call.head.headers);
    let what = format!("kind {} into {}", unit.kind, unit.queue);
    call.note(Some(&unit.tenant), unit.id, what).await?;
    let when_full = when_full(&call)?;
    let sent = client(&call).send_many(vec![unit], when_full).await?.pop();
    match sent {
        Some(Sent::Created(unit)) => {
            json_with(StatusCode::CREATED, &Became { unit, status: Status::Created })
        }
        Some(Sent::Existing(unit)) => {
            json_with(StatusCode::OK, &Became { unit, status: Status::Existing })
        }
        Some(Sent::Refused(refusal)) => Err(Problem::refused(&refusal)),
        None => Err(Problem::away("the store gave no answer")),
    }
}

pub(super) fn client(call: &Call) -> Client {
    let scope = call.caller.scope.clone();
    Client::scoped(call.house.store.clone(), scope).with_patience(call.house.limits.time)
}

/// What the sender wants when a queue is full.
pub(super) fn when_full(call: &Call) -> Result<WhenFull, Problem> {
    Ok(match call.query::<u64>("room")? {
        None | Some(0) => WhenFull::Refuse,
        Some(seconds) => WhenFull::WaitFor(Duration::from_secs(seconds)),
    })
}

/// What a second sending is recognised by. As with payment APIs, a header.
pub(super) fn idempotency_key(call: &Call) -> Result<Option<String>, Problem> {
    let Some(given) = call.head.headers.get("idempotency-key") else { return Ok(None) };
    let key = given.to_str().map(str::trim).unwrap_or_default();
    match key.is_empty() || key.len() > 256 {
        true => Err(Problem::bad("`Idempotency-Key` is text of 1 to 256 characters")),
        false => Ok(Some(key.to_owned())),
    }
}
