//! The clock that leases run by: the machine's own, since it started, the same in all its processes. Nobody
//! can set it, so a jump of the wall clock takes nobody's permit; and it stands still while the machine
//! sleeps, as everybody who holds does.

use longshore_core::{Result, Timestamp};
use rusqlite::{Connection, OptionalExtension};
use rustix::time::{ClockId, clock_gettime};

use crate::error::Translate;

/// The time now.
pub(crate) fn now() -> Timestamp {
    let time = clock_gettime(ClockId::Monotonic);
    Timestamp::from_micros(time.tv_sec * 1_000_000 + time.tv_nsec / 1_000)
}

/// Forgets who held and who waited, if the machine was started again since: then they are gone.
pub(crate) fn begin(db: &Connection) -> Result<()> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.trim();
    if is_known(db, boot)? {
        return Ok(());
    }
    db.execute_batch("BEGIN IMMEDIATE").or_translate()?;
    let done = begin_anew(db, boot);
    db.execute_batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }).or_translate()?;
    done
}

fn is_known(db: &Connection, boot: &str) -> Result<bool> {
    let known: Option<String> = db
        .query_row("SELECT id FROM longshore_boot", [], |row| row.get(0))
        .optional()
        .or_translate()?;
    Ok(known.as_deref() == Some(boot))
}

fn begin_anew(db: &Connection, boot: &str) -> Result<()> {
    // Another process may have been faster, and somebody may hold by now.
    if is_known(db, boot)? {
        return Ok(());
    }
    db.execute_batch(
        "DELETE FROM longshore_permit; DELETE FROM longshore_alert;
         UPDATE longshore_pool SET in_use = 0, came = 0, next_end = 0",
    )
    .or_translate()?;
    db.execute("INSERT OR REPLACE INTO longshore_boot VALUES (1, ?1)", [boot]).or_translate()?;
    Ok(())
}
