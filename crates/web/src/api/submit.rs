//! Sending one unit, and what a unit looks like when it comes.

use std::time::Duration;

use axum::http::StatusCode;
use longshore::store::Sent;
use longshore::unit::{After, Cap, DedupWindow, OnDuplicate, Weight};
use longshore::{
    Client, Dedup, Kind, NewUnit, Payload, Priority, QueueName, TenantId, Timestamp, UnitId,
    WhenFull,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::call::{Call, json_with};
use crate::door::Caller;
use crate::problem::Problem;
use crate::table::Answer;
use crate::whole::whole;

/// A unit as it comes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Typed {
    id: Option<UnitId>,
    tenant: Option<TenantId>,
    queue: Option<QueueName>,
    kind: Kind,
    payload: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "whole")]
    priority: Priority,
    key: Option<String>,
    #[serde(default)]
    window: DedupWindow,
    not_before: Option<Timestamp>,
    deadline: Option<Timestamp>,
    #[serde(default, deserialize_with = "whole")]
    weight: Weight,
    #[serde(default, deserialize_with = "whole")]
    cap: Option<Cap>,
    #[serde(default)]
    after: After,
    #[serde(default)]
    awaited: bool,
}

impl Typed {
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
        let window = self.window;
        let named = self.key.map(|key| Dedup { key, window, on_duplicate: OnDuplicate::Existing });
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
            awaited: self.awaited,
            ..NewUnit::new(self.kind, payload)
        };
        if !unit.queue.admits(&unit.tenant) {
            let words = format!("queue `{}` is not tenant `{}`'s", unit.queue, unit.tenant);
            return Err(Problem::not_found(words));
        }
        unit.check()?;
        Ok(unit)
    }
}

/// What became of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Became {
    unit: UnitId,
    status: &'static str,
}

pub(super) async fn one(mut call: Call) -> Answer {
    let typed: Typed = call.json().await?;
    let unit = typed.unit(&call.caller, idempotency_key(&call)?)?;
    let what = format!("kind {} into {}", unit.kind, unit.queue);
    call.note(Some(&unit.tenant), unit.id, what).await?;
    let when_full = when_full(&call)?;
    let sent = client(&call).send_many(vec![unit], when_full).await?.pop();
    match sent {
        Some(Sent::Created(unit)) => {
            json_with(StatusCode::CREATED, &Became { unit, status: "created" })
        }
        Some(Sent::Existing(unit)) => {
            json_with(StatusCode::OK, &Became { unit, status: "existing" })
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
