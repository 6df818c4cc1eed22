//! Schedules: stored as rows, fired by compare-and-set in the transaction that sends their units.

use longshore_core::schedule::{NewSchedule, Schedule};
use longshore_core::sql_row::{SCHEDULE_COLUMNS, read_schedule};
use longshore_core::store::{
    FireResult, Firing, IfExists, Page, PutScheduleResult, ScheduleFilter, ScheduleList, ScheduleSwitch,
    SendResult, parse_schedule_cursor, schedule_cursor,
};
use longshore_core::{Error, Result, ScheduleName, Scope, TenantId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::error::Translate;
use crate::row::Columns;
use crate::send::{Admission, send};
use crate::tx::Tx;

/// Adds or replaces a schedule, or keeps the one with its name.
pub(crate) fn put(
    tx: &mut Tx<'_>,
    scope: &Scope,
    new: &NewSchedule,
    if_there: IfExists,
) -> Result<PutScheduleResult> {
    new.check()?;
    scope.require(&new.tenant)?;
    let found = find(tx.db, &new.tenant, &new.name)?;
    let placed = PutScheduleResult::decide(new.clone(), found, if_there, tx.now);
    if let PutScheduleResult::Created(schedule) | PutScheduleResult::Replaced(schedule) = &placed {
        write(tx.db, schedule)?;
    }
    Ok(placed)
}

/// Pauses, resumes or removes a schedule.
pub(crate) fn switch(
    tx: &mut Tx<'_>,
    scope: &Scope,
    tenant: &TenantId,
    name: &ScheduleName,
    switch: ScheduleSwitch,
) -> Result<Schedule> {
    let mut schedule = show(tx.db, scope, tenant, name)?;
    if switch == ScheduleSwitch::Remove {
        tx.db
            .prepare_cached("DELETE FROM longshore_schedule WHERE tenant = ?1 AND name = ?2")
            .or_translate()?
            .execute((tenant.as_str(), name.as_str()))
            .or_translate()?;
    } else if schedule.switch(switch) {
        write(tx.db, &schedule)?;
    }
    Ok(schedule)
}

/// Takes one step and sends its units, both or neither.
pub(crate) fn fire(tx: &mut Tx<'_>, scope: &Scope, firing: &Firing) -> Result<FireResult> {
    firing.check()?;
    let mut schedule = show(tx.db, scope, &firing.tenant, &firing.name)?;
    if let Some(answer) = firing.answer_without_send(&schedule) {
        return Ok(answer);
    }
    let answers = send(tx, scope, &firing.units, 0, Admission::Bounded)?;
    if let Some(rejection) = answers.iter().find_map(SendResult::rejection) {
        tx.roll_back = true;
        return Ok(FireResult::Rejected(rejection.clone()));
    }
    firing.apply(&mut schedule);
    write(tx.db, &schedule)?;
    Ok(FireResult::Committed(answers))
}

fn write(db: &Connection, schedule: &Schedule) -> Result<()> {
    let (plan, payload) = schedule.plan.to_parts()?;
    db.prepare_cached(
        "INSERT OR REPLACE INTO longshore_schedule (tenant, name, plan, payload, paused, revision,
         created_at, last_fire, next_fire, fired, skipped, missed)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )
    .or_translate()?
    .execute((
        schedule.tenant.as_str(),
        schedule.name.as_str(),
        plan,
        payload.as_bytes(),
        schedule.paused,
        schedule.revision,
        schedule.created_at.as_micros(),
        schedule.last_fire.map(Timestamp::as_micros),
        schedule.next_fire.map(Timestamp::as_micros),
        schedule.fired,
        schedule.skipped,
        schedule.missed_times,
    ))
    .or_translate()?;
    Ok(())
}

fn read(row: &Row<'_>) -> rusqlite::Result<Result<Schedule>> {
    Ok(read_schedule(&Columns(row)))
}

fn find(db: &Connection, tenant: &TenantId, name: &ScheduleName) -> Result<Option<Schedule>> {
    db.prepare_cached(&format!(
        "SELECT {SCHEDULE_COLUMNS} FROM longshore_schedule WHERE tenant = ?1 AND name = ?2"
    ))
    .or_translate()?
    .query_row((tenant.as_str(), name.as_str()), read)
    .optional()
    .or_translate()?
    .transpose()
}

/// One schedule within the scope.
fn show(db: &Connection, scope: &Scope, tenant: &TenantId, name: &ScheduleName) -> Result<Schedule> {
    let found = if scope.covers(tenant) { find(db, tenant, name)? } else { None };
    found.ok_or_else(|| Error::not_found("schedule", name))
}

/// Schedules by tenant and name.
pub(crate) fn list(
    db: &Connection,
    scope: &Scope,
    filter: &ScheduleFilter,
    now: Timestamp,
    after: Option<&str>,
    limit: u32,
) -> Result<ScheduleList> {
    let own = scope.tenant().map(TenantId::as_str);
    let only = match filter {
        ScheduleFilter::All => None,
        ScheduleFilter::Named(name) => Some(name.as_str()),
        ScheduleFilter::Due => return due(db, own, now, after, limit),
    };
    let (tenant, name) = after.map_or(Ok(("", "")), parse_schedule_cursor)?;
    let rows = db
        .prepare_cached(&format!(
            "SELECT {SCHEDULE_COLUMNS} FROM longshore_schedule WHERE (tenant, name) > (?1, ?2) AND (?3 IS NULL OR tenant = ?3)
             AND (?4 IS NULL OR name = ?4) ORDER BY tenant, name LIMIT ?5"
        ))
        .or_translate()?
        .query_map((tenant, name, own, only, u64::from(limit) + 1), read)
        .or_translate()?
        .collect::<rusqlite::Result<Result<Vec<_>>>>()
        .or_translate()??;
    Ok(ScheduleList { page: page(rows, limit), now, next_due: None })
}

/// Schedules that are due, and when the next one is.
fn due(
    db: &Connection,
    own: Option<&str>,
    now: Timestamp,
    after: Option<&str>,
    limit: u32,
) -> Result<ScheduleList> {
    let (tenant, name) = after.map_or(Ok(("", "")), parse_schedule_cursor)?;
    // By the index on the time: few schedules are due, independent of their total number.
    let rows = db
        .prepare_cached(&format!(
            "SELECT {SCHEDULE_COLUMNS} FROM longshore_schedule INDEXED BY longshore_schedule_due
             WHERE paused = 0
             AND next_fire IS NOT NULL AND next_fire <= ?3 AND (tenant, name) > (?1, ?2)
             AND (?5 IS NULL OR tenant = ?5) ORDER BY tenant, name LIMIT ?4"
        ))
        .or_translate()?
        .query_map((tenant, name, now.as_micros(), u64::from(limit) + 1, own), read)
        .or_translate()?
        .collect::<rusqlite::Result<Result<Vec<_>>>>()
        .or_translate()??;
    let next: Option<i64> = db
        .prepare_cached(
            "SELECT min(next_fire) FROM longshore_schedule INDEXED BY longshore_schedule_due
             WHERE paused = 0 AND next_fire IS NOT NULL AND next_fire > ?1",
        )
        .or_translate()?
        .query_row([now.as_micros()], |row| row.get(0))
        .or_translate()?;
    let next_due = next.map(|at| Timestamp::from_micros(at).since(now));
    Ok(ScheduleList { page: page(rows, limit), now, next_due })
}

fn page(rows: Vec<Schedule>, limit: u32) -> Page<Schedule> {
    let page = Page::first(rows, limit, schedule_cursor);
    page.within_bytes(|_, schedule| schedule_cursor(schedule))
}
