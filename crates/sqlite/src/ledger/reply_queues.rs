//! Reply queues: opened for a session's lifetime.

use longshore_core::store::{OpenReplyQueue, SendResult, UnitAction};
use longshore_core::{Error, NewUnit, QueueName, Result, Scope, SessionId, TenantId, UnitState};
use rusqlite::{Connection, OptionalExtension};

use crate::error::{Translate, damaged};
use crate::send::{self, Admission};
use crate::tx::Tx;
use crate::{admin, session};

/// Opens a reply queue for a session, or closes it.
pub(crate) fn assign(
    tx: &mut Tx<'_>,
    scope: &Scope,
    tenant: &TenantId,
    queue: &QueueName,
    session: Option<SessionId>,
) -> Result<()> {
    check_access(scope, tenant, queue)?;
    let Some(session) = session else { return close(tx, tenant, queue) };
    let num = session::number(tx.db, session)?;
    match owner(tx.db, tenant, queue)? {
        Some(owner) if owner == num => return Ok(()),
        Some(_) => return Err(Error::ReplyQueueOpen(queue.clone())),
        None => {}
    }
    tx.db
        .prepare_cached(
            "INSERT INTO longshore_reply_queue (tenant, name, session) VALUES (?1, ?2,
                         ?3)",
        )
        .or_translate()?
        .execute((tenant.as_str(), queue.as_str(), num))
        .or_translate()?;
    Ok(())
}

fn check_access(scope: &Scope, tenant: &TenantId, queue: &QueueName) -> Result<()> {
    let own = scope.covers(tenant) && queue.admits(tenant);
    own.then_some(()).ok_or_else(|| Error::not_found("queue", queue))
}

fn owner(db: &Connection, tenant: &TenantId, queue: &QueueName) -> Result<Option<i64>> {
    db.prepare_cached("SELECT session FROM longshore_reply_queue WHERE tenant = ?1 AND name = ?2")
        .or_translate()?
        .query_row((tenant.as_str(), queue.as_str()), |row| row.get(0))
        .optional()
        .or_translate()
}

/// A tenant's open reply queues, or one of them.
pub(crate) fn list(
    db: &Connection,
    scope: &Scope,
    tenant: &TenantId,
    queue: Option<&QueueName>,
) -> Result<Vec<OpenReplyQueue>> {
    if !scope.covers(tenant) {
        return Ok(Vec::new());
    }
    // A range of the primary key, for one queue and for all.
    let (first, last) = queue.map_or(("", "\u{10FFFF}"), |queue| (queue.as_str(), queue.as_str()));
    let open: Vec<(String, [u8; 16])> = db
        .prepare_cached(
            "SELECT r.name, s.id FROM longshore_reply_queue r JOIN longshore_session s ON s.num = r.session
             WHERE r.tenant = ?1 AND r.name BETWEEN ?2 AND ?3 ORDER BY r.name",
        )
        .or_translate()?
        .query_map((tenant.as_str(), first, last), |row| Ok((row.get(0)?, row.get(1)?)))
        .or_translate()?
        .collect::<rusqlite::Result<_>>()
        .or_translate()?;
    let open = open.into_iter().map(|(name, session)| {
        let queue = QueueName::new(name).map_err(damaged)?;
        Ok(OpenReplyQueue { queue, session: SessionId::from_bytes(session) })
    });
    open.collect()
}

/// Sends a unit into it, if it is open for `reader`, or for any session without one.
pub(crate) fn reply(
    tx: &mut Tx<'_>,
    scope: &Scope,
    unit: &NewUnit,
    reader: Option<SessionId>,
) -> Result<Option<SendResult>> {
    let open = list(tx.db, &Scope::All, &unit.tenant, Some(&unit.queue))?;
    if !open.iter().any(|open| reader.is_none_or(|reader| reader == open.session)) {
        return Ok(None);
    }
    let sent = send::send(tx, scope, std::slice::from_ref(unit), 0, Admission::Bounded)?;
    Ok(sent.into_iter().next())
}

/// Closes it, if it is open.
fn close(tx: &mut Tx<'_>, tenant: &TenantId, queue: &QueueName) -> Result<()> {
    let closed = tx
        .db
        .prepare_cached("DELETE FROM longshore_reply_queue WHERE tenant = ?1 AND name = ?2")
        .or_translate()?
        .execute((tenant.as_str(), queue.as_str()))
        .or_translate()?;
    if closed == 0 { Ok(()) } else { cancel(tx, tenant, queue) }
}

/// Closes all reply queues of a session.
pub(crate) fn close_all(tx: &mut Tx<'_>, session: i64) -> Result<()> {
    let queues: Vec<(String, String)> = tx
        .db
        .prepare_cached(
            "DELETE FROM longshore_reply_queue WHERE session = ?1 RETURNING tenant,
                         name",
        )
        .or_translate()?
        .query_map([session], |row| Ok((row.get(0)?, row.get(1)?)))
        .or_translate()?
        .collect::<rusqlite::Result<_>>()
        .or_translate()?;
    for (tenant, queue) in queues {
        let tenant = TenantId::new(tenant).map_err(damaged)?;
        cancel(tx, &tenant, &QueueName::new(queue).map_err(damaged)?)?;
    }
    Ok(())
}

/// Moves the reply queues of a session to the one that adopts it.
pub(crate) fn transfer(tx: &Tx<'_>, from: i64, to: i64) -> Result<()> {
    tx.db
        .prepare_cached("UPDATE longshore_reply_queue SET session = ?2 WHERE session = ?1")
        .or_translate()?
        .execute((from, to))
        .or_translate()?;
    Ok(())
}

/// Cancels the units of a reply queue that is not read any more.
fn cancel(tx: &mut Tx<'_>, tenant: &TenantId, queue: &QueueName) -> Result<()> {
    let own = Scope::Tenant(tenant.clone());
    for state in UnitState::ALL.into_iter().filter(|state| !state.is_final()) {
        let left = admin::units_in_queue(tx.db, &own, queue, state)?;
        admin::apply_to_existing(tx, &left, UnitAction::Cancel)?;
    }
    Ok(())
}
