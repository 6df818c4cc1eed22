//! SQL effects: the caller's own statements, committed with a unit's finish or not at all.
//!
//! They are untrusted input. They may only change rows: any other statement, such as one that would
//! end the store's transaction, is refused. If one fails or takes too long, only its own unit is
//! affected: the transaction continues from the savepoint before it.

use std::time::Instant;

use longshore_core::effect_budget::{EFFECT_TIMEOUT, EffectBudget};
use longshore_core::{Effect, Error, Failure, Result};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use crate::tx::{Tx, statement_timeout};

mod bind;
mod placeholders;

use bind::UntypedParam;

/// Runs a unit's effects in a savepoint. Returns the failure if they were rolled back.
pub(crate) async fn run(
    tx: &mut Tx<'_>,
    effects: &[Effect],
    budget: &mut EffectBudget,
) -> Result<Option<Failure>> {
    if effects.is_empty() {
        return Ok(None);
    }
    let began = Instant::now();
    let (caller_settings, store_settings) = tx.effect_settings(budget.unit_limit());
    tx.batch(&format!("SAVEPOINT effects; {caller_settings}")).await?;
    for effect in effects {
        if let Err(failure) = run_within(tx, effect, budget, began).await? {
            tx.batch("ROLLBACK TO effects; RELEASE effects").await?;
            if failure.code != EFFECT_TIMEOUT {
                budget.spend(began.elapsed());
            }
            return Ok(Some(failure));
        }
    }
    tx.batch(&format!("RELEASE effects; {store_settings}")).await?;
    budget.spend(began.elapsed());
    Ok(None)
}

/// Runs an effect in what is left of the unit's time, which began at `began`.
async fn run_within(
    tx: &mut Tx<'_>,
    effect: &Effect,
    budget: &mut EffectBudget,
    began: Instant,
) -> Result<Result<(), Failure>> {
    let Some(limit) = budget.unit_limit() else { return run_one(tx, effect).await };
    let left = limit.saturating_sub(began.elapsed());
    // Fast effects before this one are not worth a round trip.
    if left < limit / 10 * 9 {
        tx.batch(&statement_timeout(left)).await?;
    }
    let result = run_one(tx, effect).await?;
    // The server cancels a statement at its limit, which began a little later than `began`.
    let is_late = result.is_err() && began.elapsed() >= limit;
    Ok(if is_late { Err(budget.time_out(effect)) } else { result })
}

async fn run_one(tx: &mut Tx<'_>, effect: &Effect) -> Result<Result<(), Failure>> {
    let (sql, values) = match placeholders::translate(effect) {
        Ok(statement) => statement,
        Err(reason) => {
            return Ok(Err(Failure::new("effect", format!("{reason}: {}", effect.sql))));
        }
    };
    let untyped: Vec<UntypedParam<'_>> = values.into_iter().map(UntypedParam).collect();
    let params: Vec<(&(dyn ToSql + Sync), Type)> =
        untyped.iter().map(|value| (value as &(dyn ToSql + Sync), Type::UNKNOWN)).collect();
    let changed = match tx.execute_raw(&sql, &params).await {
        Ok(changed) => changed,
        Err(error) => return classify_error(error, effect).map(Err),
    };
    Ok(match effect.expected_rows {
        Some(expected) if expected != changed => Err(Failure::new(
            "effect-rows",
            format!("changed {changed} rows instead of {expected}: {}", effect.sql),
        )),
        _ => Ok(()),
    })
}

/// Distinguishes failures of the effect from errors of the store. Whatever the server refused is
/// the effect's failure, including timeouts and errors of triggers: as an error of the store, it
/// would make the whole finish be retried for ever. A lost connection, a server shutdown, a full
/// disk or a deadlock is an error of the store.
fn classify_error(error: Error, effect: &Effect) -> Result<Failure> {
    let source = match &error {
        Error::Broken { source, .. }
        | Error::Rejected { source, .. }
        | Error::Unavailable { source, .. }
        | Error::TimedOut { source, .. } => source.as_deref(),
        _ => None,
    };
    let server = source
        .and_then(|source| source.downcast_ref::<tokio_postgres::Error>())
        .and_then(tokio_postgres::Error::as_db_error);
    match server {
        Some(server) if !is_transient(server.code()) => {
            Ok(Failure::new("effect", format!("{}: {}", server.message(), effect.sql)))
        }
        _ => Err(error),
    }
}

/// Deadlocks and serialization failures, which are retried, and a server shutdown.
fn is_transient(code: &SqlState) -> bool {
    matches!(code.code(), "40P01" | "40001") || code.code().starts_with("57P")
}
