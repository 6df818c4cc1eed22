//! The order of a pool's wait queue.

use std::time::Duration;

use crate::priority::Priority;
use crate::time::Timestamp;

/// How long a waiter must wait to make up for one priority level. Waits for permits last seconds,
/// not hours as those of units ([`crate::priority::AGING_PER_LEVEL`]): `high` passes all waiters of the last
/// minute, and no waiter starves.
pub const PERMIT_AGING_PER_LEVEL: Duration = Duration::from_secs(15);

/// The rank of a waiter that arrived at `came`; the smallest goes first. Back ends make `came`
/// strictly increasing, even if their clock is set back: first come, first served, within a
/// priority.
pub fn wait_rank(priority: Priority, came: Timestamp) -> Timestamp {
    came + PERMIT_AGING_PER_LEVEL * u32::from(priority.level())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_passes_those_who_came_lately_and_nobody_else() {
        let came = Timestamp::from_micros(1_000_000_000);
        let normal = wait_rank(Priority::NORMAL, came);
        assert!(wait_rank(Priority::HIGH, came + PERMIT_AGING_PER_LEVEL * 3) < normal);
        assert!(wait_rank(Priority::HIGH, came + PERMIT_AGING_PER_LEVEL * 5) > normal);
        assert!(wait_rank(Priority::NORMAL, came + Duration::from_micros(1)) > normal);
    }
}
