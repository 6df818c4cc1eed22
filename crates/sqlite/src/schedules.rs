//! Schedules: stored as rows, fired by compare-and-set in the transaction that sends their units.

use longshore_core::schedule::{NewSchedule, Plan, Schedule};
use longshore_core::store::{
    Fired, Firing, IfThere, Page, Placed, ScheduleFilter, ScheduleList, ScheduleSwitch, Sent,
    read_schedule_cursor, schedule_cursor,
};
use longshore_core::{Error, Payload, Result, ScheduleName, Scope, TenantId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::error::{Translate, damaged};
use crate::send::{Admission, send};
use crate::tx::Tx;

/// Adds or replaces a schedule, or keeps the one with its name.
pub(crate) fn put(
    tx: &mut Tx<'_>,
    scope: &Scope,
    new: &NewSchedule,
    if_there: IfThere,
) -> Result<Placed> {
    new.check()?;
    if !scope.covers(&new.tenant) {
        return Err(Error::not_found("tenant", &new.tenant));
    }
    match find(tx.db, &new.tenant, &new.name)? {
        Some(found) if if_there == IfThere::Keep => Ok(Placed::Kept(found)),
        Some(mut found) => {
            found.replace(new.clone());
            write(tx.db, &found)?;
            Ok(Placed::Replaced(found))
        }
        None => {
            let schedule = Schedule::new(new.clone(), tx.now);
            write(tx.db, &schedule)?;
            Ok(Placed::Created(schedule))
        }
    }
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
pub(crate) fn fire(tx: &mut Tx<'_>, scope: &Scope, firing: &Firing) -> Result<Fired> {
    firing.check()?;
    let mut schedule = show(tx.db, scope, &firing.tenant, &firing.name)?;
    if !firing.holds(&schedule) {
        return Ok(Fired::Moved);
    }
    if firing.is_repeat(&schedule) {
        let again = firing.units.iter().map(|unit| Sent::Created(unit.id));
        return Ok(Fired::Committed(again.collect()));
    }
    let answers = send(tx, scope, &firing.units, 0, Admission::Bounded)?;
    let refused = answers.iter().find_map(|answer| match answer {
        Sent::Refused(refusal) => Some(refusal.clone()),
        Sent::Created(_) | Sent::Existing(_) => None,
    });
    if let Some(refusal) = refused {
        tx.roll_back = true;
        return Ok(Fired::Refused(refusal));
    }
    firing.apply(&mut schedule);
    write(tx.db, &schedule)?;
    Ok(Fired::Committed(answers))
}

fn write(db: &Connection, schedule: &Schedule) -> Result<()> {
    let (plan, payload) = schedule.plan.split()?;
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

const SELECT: &str = "SELECT tenant, name, plan, payload, paused, revision, created_at, last_fire,
    next_fire, fired, skipped, missed FROM longshore_schedule";

fn read(row: &Row<'_>) -> rusqlite::Result<Result<Schedule>> {
    let (tenant, name): (String, String) = (row.get(0)?, row.get(1)?);
    let (plan, payload): (String, Vec<u8>) = (row.get(2)?, row.get(3)?);
    let time = |at: Option<i64>| at.map(Timestamp::from_micros);
    let (last_fire, next_fire) = (time(row.get(7)?), time(row.get(8)?));
    let (paused, revision) = (row.get(4)?, row.get(5)?);
    let created_at = Timestamp::from_micros(row.get(6)?);
    let (fired, skipped, missed_times) = (row.get(9)?, row.get(10)?, row.get(11)?);
    let whole = || {
        Ok(Schedule {
            name: ScheduleName::new(&name).map_err(damaged)?,
            tenant: TenantId::new(&tenant).map_err(damaged)?,
            plan: Plan::join(&plan, Payload::from(payload)).map_err(damaged)?,
            paused,
            revision,
            created_at,
            last_fire,
            next_fire,
            fired,
            skipped,
            missed_times,
        })
    };
    Ok(whole())
}

fn find(db: &Connection, tenant: &TenantId, name: &ScheduleName) -> Result<Option<Schedule>> {
    db.prepare_cached(&format!("{SELECT} WHERE tenant = ?1 AND name = ?2"))
        .or_translate()?
        .query_row((tenant.as_str(), name.as_str()), read)
        .optional()
        .or_translate()?
        .transpose()
}

/// One schedule within the scope.
fn show(
    db: &Connection,
    scope: &Scope,
    tenant: &TenantId,
    name: &ScheduleName,
) -> Result<Schedule> {
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
    let own = match scope {
        Scope::All => None,
        Scope::Tenant(tenant) => Some(tenant.as_str()),
    };
    let only = match filter {
        ScheduleFilter::All => None,
        ScheduleFilter::Named(name) => Some(name.as_str()),
        ScheduleFilter::Due => return due(db, own, now, after, limit),
    };
    let (tenant, name) = after.map_or(Ok(("", "")), read_schedule_cursor)?;
    let rows = db
        .prepare_cached(&format!(
            "{SELECT} WHERE (tenant, name) > (?1, ?2) AND (?3 IS NULL OR tenant = ?3)
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
    let (tenant, name) = after.map_or(Ok(("", "")), read_schedule_cursor)?;
    // By the index on the time: few schedules are due, independent of their total number.
    let rows = db
        .prepare_cached(&format!(
            "{SELECT} INDEXED BY longshore_schedule_due WHERE paused = 0
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

fn page(mut items: Vec<Schedule>, limit: u32) -> Page<Schedule> {
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let next = items.last().filter(|_| more).map(schedule_cursor);
    Page { items, next }
}
