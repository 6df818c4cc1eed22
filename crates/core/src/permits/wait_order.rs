//! The order of a pool's wait queue.

use std::time::Duration;

use crate::priority::Priority;
use crate::time::Timestamp;

/// How long a waiter must wait to make up for one priority level. Waits for permits last seconds,
/// not hours as those of units ([`crate::priority::STEP`]): `high` passes all waiters of the last
/// minute, and no waiter starves.
pub const STEP: Duration = Duration::from_secs(15);

/// The rank of a waiter that arrived at `came`; the smallest goes first. Back ends make `came`
/// strictly increasing, even if their clock is set back: first come, first served, within a
/// priority.
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
