//! Reply queues: which session owns one, and what happens to its units when it is closed.

use longshore_core::store::{OpenReplyQueue, SendResult};
use longshore_core::unit_state::{Event, transition};
use longshore_core::{Error, NewUnit, Policy, QueueName, Result, Scope, SessionId, TenantId};
use uuid::Uuid;

use crate::error::damaged;
use crate::finish::{UnitChange, apply, lock_rows_where};
use crate::row::value;
use crate::send::{self, LimitPolicy};
use crate::session;
use crate::tx::Tx;
use crate::typed_params::session_uuid;

/// Opens a reply queue for the lifetime of a session, or closes it.
pub(crate) async fn assign(
    tx: &mut Tx<'_>,
    scope: &Scope,
    tenant: &TenantId,
    queue: &QueueName,
    holder: Option<SessionId>,
) -> Result<()> {
    check_owner(scope, tenant, queue)?;
    let Some(holder) = holder else { return close(tx, tenant, queue).await };
    // The session cannot end before this is committed.
    let sql = "SELECT 1 FROM longshore_session WHERE id = $1 FOR KEY SHARE";
    if tx.query_opt(sql, &[&session_uuid(holder)]).await?.is_none() {
        return Err(Error::SessionGone(holder));
    }
    // If the queue is open this changes nothing, and returns its owner.
    let row = tx
        .query_one(
            "INSERT INTO longshore_reply_queue AS r (tenant, name, session, opened_at)
             VALUES ($1, $2, $3, $4)
             ON CONFLICT (tenant, name) DO UPDATE SET opened_at = r.opened_at
             RETURNING r.session",
            &[&tenant.as_str(), &queue.as_str(), &session_uuid(holder), &tx.now.as_micros()],
        )
        .await?;
    match value::<Uuid>(&row, 0)? == session_uuid(holder) {
        true => Ok(()),
        false => Err(Error::ReplyQueueOpen(queue.clone())),
    }
}

/// Fails for another tenant's queue as if it did not exist.
fn check_owner(scope: &Scope, tenant: &TenantId, queue: &QueueName) -> Result<()> {
    match scope.covers(tenant) && queue.admits(tenant) {
        true => Ok(()),
        false => Err(Error::not_found("queue", queue)),
    }
}

/// Closes a reply queue, if it is open, and cancels its units.
async fn close(tx: &mut Tx<'_>, tenant: &TenantId, queue: &QueueName) -> Result<()> {
    let sql = "DELETE FROM longshore_reply_queue WHERE tenant = $1 AND name = $2";
    match tx.execute(sql, &[&tenant.as_str(), &queue.as_str()]).await? {
        0 => Ok(()),
        _ => cancel(tx, tenant.as_str(), queue.as_str()).await,
    }
}

/// A tenant's open reply queues, or one of them.
pub(crate) async fn list(
    tx: &mut Tx<'_>,
    scope: &Scope,
    tenant: &TenantId,
    queue: Option<&QueueName>,
) -> Result<Vec<OpenReplyQueue>> {
    if !scope.covers(tenant) {
        return Ok(Vec::new());
    }
    // A range of the primary key, for one queue and for all.
    let (first, last) = queue.map_or(("", "\u{10FFFF}"), |queue| (queue.as_str(), queue.as_str()));
    let sql = "SELECT name, session FROM longshore_reply_queue
               WHERE tenant = $1 AND name BETWEEN $2 AND $3 ORDER BY name";
    let rows = tx.query(sql, &[&tenant.as_str(), &first, &last]).await?;
    let open = rows.iter().map(|row| {
        let queue = QueueName::new(value::<&str>(row, 0)?).map_err(damaged)?;
        Ok(OpenReplyQueue { queue, session: SessionId::from_bytes(value::<Uuid>(row, 1)?.into_bytes()) })
    });
    open.collect()
}

/// Sends a unit to a reply queue, if it is open for `reader`, or for any session without one. Closing the
/// queue waits for this commit, and then cancels the unit.
pub(crate) async fn reply(
    tx: &mut Tx<'_>,
    scope: &Scope,
    unit: &NewUnit,
    reader: Option<SessionId>,
) -> Result<Option<SendResult>> {
    let sql = "SELECT 1 FROM longshore_reply_queue WHERE tenant = $1 AND name = $2
               AND session = COALESCE($3, session) FOR KEY SHARE";
    let reader = reader.map(session_uuid);
    if tx.query_opt(sql, &[&unit.tenant.as_str(), &unit.queue.as_str(), &reader]).await?.is_none() {
        return Ok(None);
    }
    let sent = send::send(tx, scope, std::slice::from_ref(unit), 0, LimitPolicy::Enforce).await?;
    Ok(sent.into_iter().next())
}

/// Closes the reply queues of a session that ends.
pub(crate) async fn close_all(tx: &mut Tx<'_>, session: SessionId) -> Result<()> {
    let sql = "DELETE FROM longshore_reply_queue WHERE session = $1 RETURNING tenant, name";
    for row in tx.query(sql, &[&session_uuid(session)]).await? {
        cancel(tx, value(&row, 0)?, value(&row, 1)?).await?;
    }
    Ok(())
}

/// Transfers reply queues to the session that adopts the leases.
pub(crate) async fn transfer(tx: &mut Tx<'_>, from: SessionId, to: SessionId) -> Result<()> {
    let sql = "UPDATE longshore_reply_queue SET session = $2 WHERE session = $1";
    tx.execute(sql, &[&session_uuid(from), &session_uuid(to)]).await?;
    Ok(())
}

/// Cancels the waiting units of a tenant's lane, and requests the cancellation of running ones.
async fn cancel(tx: &mut Tx<'_>, tenant: &str, queue: &str) -> Result<()> {
    let live = "u.id = ANY(ARRAY(SELECT u.id FROM longshore_queue q
          JOIN longshore_lane l ON l.queue = q.num AND l.tenant = $1
          JOIN longshore_stream s ON s.lane = l.num CROSS JOIN LATERAL (
            SELECT u.id FROM longshore_unit u WHERE u.stream = s.num AND u.state IN (0, 1, 7, 8)
            UNION ALL SELECT r.id FROM longshore_ready r WHERE r.stream = s.num
            UNION ALL SELECT unnest(g.units) FROM longshore_lease_group g WHERE g.stream = s.num
            UNION ALL SELECT u.id FROM longshore_unit u WHERE u.session IS NOT NULL AND u.stream = s.num) u
          WHERE q.name = $2)) ORDER BY u.id FOR UPDATE";
    let (mut changes, mut running) = (Vec::new(), Vec::new());
    for row in lock_rows_where(tx, live, &[&tenant, &queue]).await? {
        if row.session.is_some() {
            running.push(row);
            continue;
        }
        if row.state()?.is_final() {
            continue;
        }
        let step = transition(&row.transition_input()?, &Event::Cancel, &Policy::default(), tx.now)?;
        changes.push(UnitChange::step(row, step));
    }
    if !running.is_empty() {
        session::request_cancels(tx, &running).await?;
    }
    apply(tx, changes).await
}
