//! Writing calls: with their results, with the finish of a unit, and with the end of a session.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_accounts::{BudgetState, CallRecord, CostCorrection};
use longshore_core::{CallId, Error, Result, Scope, SessionId, Timestamp};
use uuid::Uuid;

use super::call_row::{CallEndColumns, CallIntentColumns, OwnedParams, borrow_params};
use crate::queries;
use crate::row::{count, value};
use crate::store::StoreInner;
use crate::tx::Tx;
use crate::typed_params::{call_id, call_uuid, session_uuid};

const RECORD: &str = "SELECT longshore_record_calls($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
                      $12,
    $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26,
    $27, $28, $29)";

/// Records as the parameters of one statement. If a call occurs twice, an end is kept; else the
/// later record wins, as if both had been written in order.
fn params<'r>(
    records: impl Iterator<Item = &'r CallRecord>,
    now: Timestamp,
    autocommit: bool,
) -> OwnedParams {
    let mut by_call: BTreeMap<CallId, &CallRecord> = BTreeMap::new();
    for record in records {
        let latest = by_call.entry(record.call.id).or_insert(record);
        if latest.end.is_none() {
            *latest = record;
        }
    }
    let mut params = CallIntentColumns::of(by_call.values().map(|record| &record.call)).params();
    params.extend(CallEndColumns::of(by_call.values().copied()).params());
    params.push(Box::new(now.as_micros()));
    params.push(Box::new(BudgetState::month_of(now)));
    params.push(Box::new(autocommit));
    params
}

/// Writes calls in autocommit mode.
pub(crate) async fn record(inner: &Arc<StoreInner>, records: Vec<CallRecord>) -> Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    let store = Arc::clone(inner);
    let task = async move {
        let params = params(records.iter(), store.now(), true);
        store.query_autocommit(RECORD, &borrow_params(&params)).await?;
        store.count_spend();
        Ok(())
    };
    inner.run_to_completion(task).await
}

/// Writes calls with the finish or checkpoint of a unit. The unit's row is locked. The statement is
/// pipelined with the commit.
pub(crate) fn record_with<'r>(tx: &mut Tx<'_>, records: impl Iterator<Item = &'r CallRecord>) {
    let mut records = records.peekable();
    if records.peek().is_some() {
        let params = params(records, tx.now, false);
        tx.pipeline_with_commit(RECORD, params);
        tx.after.deltas += 1;
    }
}

/// Marks the open calls of a session as maybe billed.
pub(crate) async fn mark_maybe_billed(tx: &mut Tx<'_>, session: SessionId) -> Result<()> {
    let sql = "SELECT longshore_end_abandoned_calls($1, $2)";
    tx.query(sql, &[&vec![session_uuid(session)], &tx.now.as_micros()]).await?;
    Ok(())
}

/// Deletes calls that ended and were opened until a time, from their months too.
pub(crate) async fn prune(tx: &mut Tx<'_>, until: Timestamp, limit: u32) -> Result<u64> {
    let sql = "WITH gone AS (
           DELETE FROM longshore_call WHERE id = ANY(ARRAY(
             SELECT id FROM longshore_call WHERE opened_at <= $1 AND status <> 0
             ORDER BY opened_at LIMIT $2 FOR UPDATE SKIP LOCKED))
           RETURNING tenant, month, tokens_in, tokens_out, cost_picos),
         counted AS (
           INSERT INTO longshore_monthly_spend_delta
           SELECT tenant, month, -sum(tokens_in::numeric + tokens_out), -sum(cost_picos::numeric), 0, 0
           FROM gone GROUP BY tenant, month)
         SELECT count(*) FROM gone";
    let pruned = count(&tx.query_one(sql, &[&until.as_micros(), &i64::from(limit)]).await?, 0)?;
    tx.after.deltas += usize::from(pruned > 0);
    Ok(pruned)
}

/// Corrects the costs of calls, all or none.
pub(crate) async fn recost(tx: &mut Tx<'_>, scope: &Scope, recosts: &[CostCorrection]) -> Result<()> {
    // If a call has several prices, the last one counts.
    let prices: BTreeMap<CallId, i64> = recosts.iter().map(|recost| (recost.id, recost.cost_picos)).collect();
    let ids: Vec<Uuid> = prices.keys().map(|id| call_uuid(*id)).collect();
    let costs: Vec<i64> = prices.values().copied().collect();
    let sql = "SELECT c.id, c.status FROM longshore_call c WHERE c.id = ANY($1)
        AND ($2 IS NULL OR c.tenant = $2) ORDER BY c.id FOR UPDATE";
    let mut found = BTreeMap::new();
    for row in tx.query(sql, &[&ids, &queries::tenant(scope)]).await? {
        found.insert(call_id(value(&row, 0)?), value::<i16>(&row, 1)?);
    }
    for recost in recosts {
        match found.get(&recost.id) {
            None => return Err(Error::not_found("call", recost.id)),
            Some(0) => return Err(recost.open_call_error()),
            Some(_) => (),
        }
    }
    tx.query(
        "WITH old AS MATERIALIZED (SELECT id, cost_picos FROM longshore_call WHERE id = ANY($1)),
         new AS (
           UPDATE longshore_call c SET cost_picos = g.cost FROM unnest($1, $2) AS g (id, cost)
           WHERE c.id = g.id RETURNING c.id, c.tenant, c.month, c.cost_picos)
         INSERT INTO longshore_monthly_spend_delta
         SELECT n.tenant, n.month, 0, sum(n.cost_picos::numeric - o.cost_picos), 0, 0
         FROM new n JOIN old o ON o.id = n.id GROUP BY n.tenant, n.month",
        &[&ids, &costs],
    )
    .await?;
    Ok(())
}
