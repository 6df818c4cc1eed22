//! Mutations of cron expressions: a schedule or an error, and its next time is found in time.

use longshore::{CronSchedule, Timestamp};
use longshore_testkit::fuzz;

#[test]
fn fuzz_cron_expressions() {
    let start = Timestamp::parse("2026-03-28T12:00:00Z").unwrap();
    fuzz(env!("CARGO_MANIFEST_DIR"), "cron", |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let (expression, zone) = text.split_once('\n').unwrap_or((text, "UTC"));
        let Ok(schedule) = CronSchedule::new(expression, zone.trim()) else { return };
        let mut at = start;
        for _ in 0..3 {
            let Some(next) = schedule.next_after(at) else { return };
            assert!(next > at, "{expression} in {zone}");
            at = next;
        }
    });
}
