//! Units: found, shown, waited for, cancelled and retried.

use std::time::Duration;

use longshore::store::{Page, UnitAction, UnitFailure, UnitFilter, UnitSelection};
use longshore::unit::Payload;
use longshore::{Client, Unit, UnitId, WaitError};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::call::{Call, json};
use crate::door::Caller;
use crate::problem::Problem;
use crate::table::Answer;

/// A unit for whoever asks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shown {
    /// The unit.
    #[serde(flatten)]
    pub unit: Unit,
    /// Whether what it carries is left out.
    pub masked: bool,
    /// Its runs that did not end well, oldest first; lists leave them out.
    pub failures: Vec<UnitFailure>,
}

/// Read in two goes: what a unit carries is kept as it was written, which `flatten` cannot do.
impl<'de> Deserialize<'de> for Shown {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Beside {
            masked: bool,
            failures: Vec<UnitFailure>,
        }
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let read = || {
            let Beside { masked, failures } = serde_json::from_str(text.get())?;
            Ok(Self { unit: serde_json::from_str(text.get())?, masked, failures })
        };
        read().map_err(|error: serde_json::Error| serde::de::Error::custom(error))
    }
}

impl Shown {
    fn new(mut unit: Unit, failures: Vec<UnitFailure>, caller: &Caller) -> Self {
        let masked = !caller.reads(&unit.tenant);
        if masked {
            unit.payload = Payload::from(serde_json::Value::Null);
            (unit.checkpoint, unit.result, unit.key) = (None, None, None);
        }
        Self { unit, masked, failures }
    }

    /// One of a list: lists carry nothing.
    fn listed(mut unit: Unit, caller: &Caller) -> Self {
        unit.payload = Payload::from(serde_json::Value::Null);
        if !caller.reads(&unit.tenant) {
            unit.key = None;
        }
        Self { unit, masked: true, failures: Vec::new() }
    }
}

pub(super) async fn list(call: Call) -> Answer {
    let filter = UnitFilter {
        state: call.query("state")?,
        queue: call.query("queue")?,
        kind: call.query("kind")?,
        batch: call.query("batch")?,
    };
    let (scope, limit) = (call.scope()?, call.limit()?);
    let page = call.house.store.units(&scope, &filter, call.after(), limit).await?;
    let listed = |unit: Unit| Shown::listed(unit, &call.caller);
    let items: Vec<Shown> = page.items.into_iter().map(listed).collect();
    json(&Page { items, next: page.next })
}

pub(super) async fn show(call: Call) -> Answer {
    let id: UnitId = id(&call)?;
    let unit = match call.query::<u64>("wait")? {
        None | Some(0) => call.house.store.unit(&call.caller.scope, id).await?,
        Some(seconds) => waited(&call, id, Duration::from_secs(seconds)).await?,
    };
    let failures = call.house.store.failures(&call.caller.scope, id).await?;
    json(&Shown::new(unit, failures, &call.caller))
}

/// A unit that has ended, or as it is when the wait is over.
async fn waited(call: &Call, id: UnitId, limit: Duration) -> Result<Unit, Problem> {
    let client = Client::scoped(call.house.store.clone(), call.caller.scope.clone());
    match client.wait(id, Some(limit)).await {
        Ok(unit) => Ok(unit),
        Err(WaitError::TimedOut(_)) => Ok(call.house.store.unit(&call.caller.scope, id).await?),
        Err(error) => Err(error.into()),
    }
}

fn id(call: &Call) -> Result<UnitId, Problem> {
    call.path("unit").map_err(|_| Problem::bad("a unit's id is a UUID"))
}

pub(super) async fn cancel(call: Call) -> Answer {
    operate(call, UnitAction::Cancel).await
}

pub(super) async fn retry(call: Call) -> Answer {
    operate(call, UnitAction::Retry).await
}

async fn operate(call: Call, action: UnitAction) -> Answer {
    let id = id(&call)?;
    let (store, scope) = (&call.house.store, &call.caller.scope);
    let tenant = store.unit(scope, id).await?.tenant;
    call.note(Some(&tenant), id, "").await?;
    let done = store.operate_units(scope, UnitSelection::Ids(vec![id]), action).await?;
    json(&done)
}
