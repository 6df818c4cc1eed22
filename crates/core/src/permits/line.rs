//! The line before a pool: who is next.

use std::time::Duration;

use crate::rank::Priority;
use crate::time::Timestamp;

/// How long a waiter must wait to weigh as much as one priority level. Waits for permits are counted in
/// seconds, not in hours as those of units ([`crate::rank::STEP`]): `high` passes everyone who came in
/// the last minute, and nobody waits for ever.
pub const STEP: Duration = Duration::from_secs(15);

/// Where a waiter stands that came at `came`, smallest first. Back ends give each waiter a `came` later
/// than the one before, whatever their clock does: first come, first served, within a priority.
pub fn rank(priority: Priority, came: Timestamp) -> Timestamp {
    came + STEP * u32::from(priority.level())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_passes_those_who_came_lately_and_nobody_else() {
        let came = Timestamp::from_micros(1_000_000_000);
        let normal = rank(Priority::NORMAL, came);
        assert!(rank(Priority::HIGH, came + STEP * 3) < normal);
        assert!(rank(Priority::HIGH, came + STEP * 5) > normal);
        assert!(rank(Priority::NORMAL, came + Duration::from_micros(1)) > normal);
    }
}
