//! SQL effects: the caller's own statements, committed with a unit's finish or not at all.
//!
//! They are untrusted input. They may only change rows: any other statement, such as one that would
//! end the store's transaction, is refused. If one fails or takes too long, only its own unit is
//! affected: the transaction continues from the savepoint before it.

use std::time::Instant;

use longshore_core::effect_budget::EffectBudget;
use longshore_core::store::FinishResult;
use longshore_core::{Effect, Error, Failure, Result};
use tokio_postgres::types::{ToSql, Type};

use crate::row::value;
use crate::tx::{Tx, effect_timeouts};

mod bind;
mod placeholders;

use bind::UntypedParam;

/// Why an effect was rolled back.
enum EffectError {
    /// The effect's own failure.
    Failed(Failure),
    /// The server cancelled the statement: at the effect's time limit, or an operator did.
    Cancelled(Error),
    /// Another transaction holds a lock for too long.
    Locked,
    /// An error of the store or of the server.
    Store(Error),
}

/// Runs a unit's effects in a savepoint. Returns the result of the finish if they were rolled back.
pub(crate) async fn run(
    tx: &mut Tx<'_>,
    effects: &[Effect],
    budget: &mut EffectBudget,
) -> Result<Option<FinishResult>> {
    let Some(last) = effects.last() else { return Ok(None) };
    let began = Instant::now();
    let (caller_settings, store_settings) = tx.effect_settings(budget.unit_limit());
    let constraints = initial_constraints(tx).await?;
    tx.batch(&format!("SAVEPOINT effects; {constraints}{caller_settings}")).await?;
    let mut failed = None;
    for effect in effects {
        set_time_left(tx, budget, began).await?;
        if let Err(error) = run_one(tx, effect).await {
            failed = Some((effect, error));
            break;
        }
    }
    if failed.is_none() {
        set_time_left(tx, budget, began).await?;
        let release = format!("{}RELEASE effects; {store_settings}", run_deferred(tx));
        failed = tx.batch(&release).await.err().map(|error| (last, classify_error(error, last)));
    }
    let Some((effect, error)) = failed else {
        budget.spend(began.elapsed());
        return Ok(None);
    };
    let is_late = budget.unit_limit().is_some_and(|limit| began.elapsed() >= limit);
    let result = match error {
        EffectError::Store(error) => return Err(error),
        // Before the limit, an operator cancelled it.
        EffectError::Cancelled(error) if !is_late => return Err(error),
        EffectError::Locked => {
            let failure = budget.time_out(effect);
            tracing::warn!(%failure, "an effect waits for a lock of another transaction; it is tried again");
            FinishResult::Locked
        }
        EffectError::Failed(failure) if !is_late => {
            budget.spend(began.elapsed());
            FinishResult::EffectFailed(failure)
        }
        EffectError::Cancelled(_) | EffectError::Failed(_) => {
            FinishResult::EffectFailed(budget.time_out(effect))
        }
    };
    tx.batch("ROLLBACK TO effects; RELEASE effects").await?;
    Ok(Some(result))
}

/// A statement that runs deferred constraints and triggers of the effects now, inside their savepoint and time limit. At
/// the commit, where PostgreSQL applies no `statement_timeout`, a failure could not be blamed on a unit. A caller's own
/// transaction decides this itself.
fn run_deferred(tx: &mut Tx<'_>) -> &'static str {
    if tx.is_caller_transaction() {
        return "";
    }
    tx.constraints_are_immediate = true;
    "SET CONSTRAINTS ALL IMMEDIATE; "
}

/// Statements that set all constraints as a transaction finds them, after [`run_deferred`] for an earlier unit.
async fn initial_constraints(tx: &mut Tx<'_>) -> Result<String> {
    if !tx.constraints_are_immediate {
        return Ok(String::new());
    }
    let row = tx.query_one(INITIALLY_IMMEDIATE, &[]).await?;
    let immediate: Option<String> = value(&row, 0)?;
    let immediate = immediate.map(|names| format!("SET CONSTRAINTS {names} IMMEDIATE; "));
    Ok(format!("SET CONSTRAINTS ALL DEFERRED; {}", immediate.unwrap_or_default()))
}

const INITIALLY_IMMEDIATE: &str = "SELECT string_agg(format('%I.%I', nspname, conname), ', ')
    FROM pg_constraint JOIN pg_namespace ON pg_namespace.oid = connamespace
    WHERE condeferrable AND NOT condeferred AND has_schema_privilege(connamespace, 'USAGE')";

/// Limits the next statements to what is left of the unit's time, which began at `began`.
async fn set_time_left(tx: &mut Tx<'_>, budget: &EffectBudget, began: Instant) -> Result<()> {
    let Some(limit) = budget.unit_limit() else { return Ok(()) };
    let left = limit.saturating_sub(began.elapsed());
    // Fast effects before this one are not worth a round trip.
    if left < limit / 10 * 9 { tx.batch(&effect_timeouts(left)).await } else { Ok(()) }
}

async fn run_one(tx: &mut Tx<'_>, effect: &Effect) -> Result<(), EffectError> {
    let failed = |code, reason: &dyn std::fmt::Display| {
        EffectError::Failed(Failure::new(code, format!("{reason}: {}", effect.sql)))
    };
    let (sql, values) = placeholders::translate(effect).map_err(|reason| failed("effect", &reason))?;
    let untyped: Vec<UntypedParam<'_>> = values.into_iter().map(UntypedParam).collect();
    let params: Vec<(&(dyn ToSql + Sync), Type)> =
        untyped.iter().map(|value| (value as &(dyn ToSql + Sync), Type::UNKNOWN)).collect();
    let changed = tx.execute_raw(&sql, &params).await.map_err(|error| classify_error(error, effect))?;
    match effect.expected_rows {
        Some(expected) if expected != changed => {
            Err(failed("effect-rows", &format_args!("changed {changed} rows instead of {expected}")))
        }
        _ => Ok(()),
    }
}

/// Distinguishes failures of the effect from errors of the store. What the server refused is the effect's failure,
/// including errors of triggers: as an error of the store, it would make the whole finish be retried for ever. A lost
/// connection, a server shutdown, a full disk or a deadlock is an error of the store.
///
/// Where the server lacks memory, cannot read a file or cannot reach the server of a foreign table, the finish takes
/// "too long": the worker repeats it with half as many units, until those with such effects are alone.
fn classify_error(error: Error, effect: &Effect) -> EffectError {
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
    let Some(server) = server else { return EffectError::Store(error) };
    match server.code().code() {
        // Retried, or the server has become a standby, or shuts down.
        "40P01" | "40001" | "25006" => EffectError::Store(error),
        "57014" => EffectError::Cancelled(error),
        "55P03" => EffectError::Locked,
        code if code.starts_with("57P") => EffectError::Store(error),
        code if ["08", "53", "58", "HV", "XX"].iter().any(|class| code.starts_with(class)) => {
            let message =
                format!("PostgreSQL cannot run an effect now ({}): {}", server.message(), effect.sql);
            EffectError::Store(Error::timed_out(message))
        }
        _ => EffectError::Failed(Failure::new("effect", format!("{}: {}", server.message(), effect.sql))),
    }
}
