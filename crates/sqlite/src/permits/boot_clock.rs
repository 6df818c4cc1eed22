//! The clock of leases: the machine's monotonic clock since boot, the same in all processes. It
//! cannot be set, so a jump of the wall clock expires no permit; and it stands still while the
//! machine is suspended, as all holders do.

use longshore_core::{Result, Timestamp};
use rusqlite::{Connection, OptionalExtension};
use rustix::time::{ClockId, clock_gettime};

use crate::error::Translate;

/// The time now.
pub(crate) fn now() -> Timestamp {
    let time = clock_gettime(ClockId::Monotonic);
    Timestamp::from_micros(time.tv_sec * 1_000_000 + time.tv_nsec / 1_000)
}

/// Removes holders and waiters if the machine was rebooted since: they are gone.
pub(crate) fn clear_after_reboot(db: &Connection) -> Result<()> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.trim();
    if is_same_boot(db, boot)? {
        return Ok(());
    }
    db.execute_batch("BEGIN IMMEDIATE").or_translate()?;
    let done = clear_permits(db, boot);
    db.execute_batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }).or_translate()?;
    done
}

fn is_same_boot(db: &Connection, boot: &str) -> Result<bool> {
    let stored: Option<String> =
        db.query_row("SELECT boot_id FROM longshore_boot", [], |row| row.get(0)).optional().or_translate()?;
    Ok(stored.as_deref() == Some(boot))
}

fn clear_permits(db: &Connection, boot: &str) -> Result<()> {
    // Another process may have cleared them meanwhile, and permits may be held again.
    if is_same_boot(db, boot)? {
        return Ok(());
    }
    db.execute_batch(
        "DELETE FROM longshore_permit; DELETE FROM longshore_pool_alert;
         UPDATE longshore_bounded_pool SET in_use = 0, last_arrival = 0, next_expiry = 0",
    )
    .or_translate()?;
    db.execute("INSERT OR REPLACE INTO longshore_boot VALUES (1, ?1)", [boot]).or_translate()?;
    Ok(())
}
