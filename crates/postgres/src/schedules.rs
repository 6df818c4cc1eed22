//! Schedules: rows that are fired by compare-and-set in the transaction that sends their units.

use longshore_core::schedule::{NewSchedule, Schedule};
use longshore_core::sql_row::{SCHEDULE_COLUMNS, read_schedule};
use longshore_core::store::{
    FireResult, Firing, IfExists, Page, PutScheduleResult, ScheduleFilter, ScheduleList, ScheduleSwitch,
    SendResult, parse_schedule_cursor, schedule_cursor,
};
use longshore_core::{Error, Result, ScheduleName, Scope, TenantId, Timestamp};
use tokio_postgres::Row;

use crate::error::{conflict, damaged};
use crate::queries;
use crate::row::{Columns, readable, value};
use crate::send::{LimitPolicy, send};
use crate::tx::Tx;

/// Creates or replaces a schedule, or returns the existing one.
pub(crate) async fn put(
    tx: &mut Tx<'_>,
    scope: &Scope,
    new: &NewSchedule,
    if_there: IfExists,
) -> Result<PutScheduleResult> {
    new.check()?;
    scope.require(&new.tenant)?;
    let found = find(tx, &new.tenant, &new.name).await?;
    let placed = PutScheduleResult::decide(new.clone(), found, if_there, tx.now);
    match &placed {
        PutScheduleResult::Created(schedule) => insert(tx, schedule).await?,
        PutScheduleResult::Replaced(schedule) => update(tx, schedule).await?,
        PutScheduleResult::Unchanged(_) => return Ok(placed),
    }
    announce(tx, &new.tenant);
    Ok(placed)
}

/// Pauses, resumes or removes a schedule.
pub(crate) async fn switch(
    tx: &mut Tx<'_>,
    scope: &Scope,
    tenant: &TenantId,
    name: &ScheduleName,
    switch: ScheduleSwitch,
) -> Result<Schedule> {
    let mut schedule = show_locked(tx, scope, tenant, name).await?;
    if switch == ScheduleSwitch::Remove {
        let sql = "DELETE FROM longshore_schedule WHERE tenant = $1 AND name = $2";
        tx.execute(sql, &[&tenant.as_str(), &name.as_str()]).await?;
    } else if schedule.switch(switch) {
        update(tx, &schedule).await?;
        announce(tx, tenant);
    }
    Ok(schedule)
}

/// Announces a change, so that schedulers read again: a schedule may be due earlier than before.
fn announce(tx: &mut Tx<'_>, tenant: &TenantId) {
    tx.announce("setting", "schedule", Some(tenant.as_str()));
}

/// Fires a schedule and sends its units, both or neither.
pub(crate) async fn fire(tx: &mut Tx<'_>, scope: &Scope, firing: &Firing) -> Result<FireResult> {
    firing.check()?;
    let mut schedule = show_locked(tx, scope, &firing.tenant, &firing.name).await?;
    if let Some(answer) = firing.answer_without_send(&schedule) {
        return Ok(answer);
    }
    let answers = send(tx, scope, &firing.units, 0, LimitPolicy::Enforce).await?;
    if let Some(rejection) = answers.iter().find_map(SendResult::rejection) {
        tx.abandon = true;
        return Ok(FireResult::Rejected(rejection.clone()));
    }
    firing.apply(&mut schedule);
    update(tx, &schedule).await?;
    Ok(FireResult::Committed(answers))
}

async fn insert(tx: &mut Tx<'_>, schedule: &Schedule) -> Result<()> {
    let sql = "INSERT INTO longshore_schedule (tenant, name, plan, payload, paused, revision,
        last_fire, next_fire, fired, skipped, missed, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING";
    // Another transaction inserted a schedule of that name: retry and find it.
    if write(tx, sql, schedule).await? == 0 { Err(conflict()) } else { Ok(()) }
}

async fn update(tx: &mut Tx<'_>, schedule: &Schedule) -> Result<()> {
    let sql = "UPDATE longshore_schedule SET plan = $3, payload = $4, paused = $5, revision = $6,
        last_fire = $7, next_fire = $8, fired = $9, skipped = $10, missed = $11, created_at = $12
        WHERE tenant = $1 AND name = $2";
    write(tx, sql, schedule).await?;
    Ok(())
}

async fn write(tx: &mut Tx<'_>, sql: &str, schedule: &Schedule) -> Result<u64> {
    let (plan, payload) = schedule.plan.to_parts()?;
    let number = |number: u64| i64::try_from(number).map_err(damaged);
    tx.execute(
        sql,
        &[
            &schedule.tenant.as_str(),
            &schedule.name.as_str(),
            &plan,
            &payload.as_bytes(),
            &schedule.paused,
            &number(schedule.revision)?,
            &schedule.last_fire.map(Timestamp::as_micros),
            &schedule.next_fire.map(Timestamp::as_micros),
            &number(schedule.fired)?,
            &number(schedule.skipped)?,
            &number(schedule.missed_times)?,
            &schedule.created_at.as_micros(),
        ],
    )
    .await
}

/// A schedule, locked for a change.
async fn find(tx: &mut Tx<'_>, tenant: &TenantId, name: &ScheduleName) -> Result<Option<Schedule>> {
    let sql = format!(
        "SELECT {SCHEDULE_COLUMNS} FROM longshore_schedule WHERE tenant = $1 AND name = $2 FOR UPDATE"
    );
    let row = tx.query_opt(&sql, &[&tenant.as_str(), &name.as_str()]).await?;
    row.as_ref().map(|row| read_schedule(&Columns(row))).transpose()
}

/// One schedule within the scope, locked.
async fn show_locked(
    tx: &mut Tx<'_>,
    scope: &Scope,
    tenant: &TenantId,
    name: &ScheduleName,
) -> Result<Schedule> {
    let found = if scope.covers(tenant) { find(tx, tenant, name).await? } else { None };
    found.ok_or_else(|| Error::not_found("schedule", name))
}

/// Schedules by tenant and name.
pub(crate) async fn list(
    tx: &mut Tx<'_>,
    scope: &Scope,
    filter: &ScheduleFilter,
    after: Option<&str>,
    limit: u32,
) -> Result<ScheduleList> {
    let own = queries::tenant(scope);
    let only = match filter {
        ScheduleFilter::All => None,
        ScheduleFilter::Named(name) => Some(name.as_str()),
        ScheduleFilter::Due => return due(tx, own, after, limit).await,
    };
    let (tenant, name) = after.map_or(Ok(("", "")), parse_schedule_cursor)?;
    let sql = format!(
        "SELECT {SCHEDULE_COLUMNS} FROM longshore_schedule WHERE (tenant, name) > ($1, $2) AND ($3 IS NULL OR tenant = $3)
         AND ($4 IS NULL OR name = $4) ORDER BY tenant, name LIMIT $5"
    );
    let max_rows = i64::from(limit) + 1;
    let rows = tx.query(&sql, &[&tenant, &name, &own, &only, &max_rows]).await?;
    Ok(ScheduleList { page: page(&rows, limit)?, now: tx.now, next_due: None })
}

/// Due schedules, and the time until the next one.
async fn due(tx: &mut Tx<'_>, own: Option<&str>, after: Option<&str>, limit: u32) -> Result<ScheduleList> {
    let now = tx.read_clock().await?;
    let (tenant, name) = after.map_or(Ok(("", "")), parse_schedule_cursor)?;
    // By the index on the time, since few schedules are due.
    let sql = format!(
        "SELECT {SCHEDULE_COLUMNS} FROM longshore_schedule WHERE NOT paused AND next_fire IS NOT NULL AND next_fire <= $3
         AND (tenant, name) > ($1, $2) AND ($5 IS NULL OR tenant = $5)
         ORDER BY tenant, name LIMIT $4"
    );
    let max_rows = i64::from(limit) + 1;
    let rows = tx.query(&sql, &[&tenant, &name, &now.as_micros(), &max_rows, &own]).await?;
    let sql = "SELECT min(next_fire) FROM longshore_schedule
        WHERE NOT paused AND next_fire IS NOT NULL AND next_fire > $1";
    let next: Option<i64> = value(&tx.query_one(sql, &[&now.as_micros()]).await?, 0)?;
    let next_due = next.map(|at| Timestamp::from_micros(at).since(now));
    Ok(ScheduleList { page: page(&rows, limit)?, now, next_due })
}

fn page(rows: &[Row], limit: u32) -> Result<Page<Schedule>> {
    let here = &rows[..rows.len().min(limit as usize)];
    let read = |row| readable("a schedule", read_schedule(&Columns(row)));
    let items = here.iter().filter_map(read).collect();
    let next = match here.last().filter(|_| rows.len() > here.len()) {
        Some(last) => Some(format!("{}/{}", value::<&str>(last, 0)?, value::<&str>(last, 1)?)),
        None => None,
    };
    Ok(Page { items, next }.within_bytes(|_, schedule| schedule_cursor(schedule)))
}
