//! What schedules do with missed and overlapping times.

use std::time::Duration;

use longshore_core::schedule::{
    MISSED_AFTER, MissedPolicy, NewSchedule, OverlapPolicy, PreviousFiring, Schedule, ScheduleDecision,
    SchedulePlan, ScheduleStep, UnitTemplate, decide, firing_batch_id, firing_unit_id,
};
use longshore_core::{Kind, Payload, ScheduleName, TenantId, Timestamp};
use proptest::prelude::*;

/// Seconds after an arbitrary start.
fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(1_767_225_600_000_000) + Duration::from_secs(seconds)
}

/// A schedule that fires first at `at(first)`.
fn schedule(first: u64, missed: MissedPolicy, overlap: OverlapPolicy) -> Schedule {
    let template = UnitTemplate::new(Kind::new("work").unwrap(), Payload::from(Vec::new()));
    let (cron, zone) = ("not looked at".to_owned(), "UTC".to_owned());
    let new = NewSchedule {
        name: ScheduleName::new("s").unwrap(),
        tenant: TenantId::default(),
        plan: SchedulePlan { cron, zone, missed, overlap, template },
        paused: false,
        next_fire: Some(at(first)),
    };
    Schedule::new(new, at(0))
}

/// Every `period` seconds from `at(0)` on.
fn every(period: u64) -> impl Fn(Timestamp) -> Option<Timestamp> {
    move |time| Some(at((time.since(at(0)).as_secs() / period + 1) * period))
}

/// All steps at `now`, if each firing ends at once.
fn steps(mut schedule: Schedule, now: u64, period: u64) -> (Vec<u64>, u64, u64, Schedule) {
    let mut fired = Vec::new();
    for _ in 0..10_000 {
        match decide(&schedule, PreviousFiring::Absent, at(now), every(period)) {
            ScheduleDecision::Wait => {
                let (missed, skipped) = (schedule.missed_times, schedule.skipped);
                return (fired, missed, skipped, schedule);
            }
            ScheduleDecision::Defer => unreachable!("nothing is live"),
            ScheduleDecision::Step(step) => {
                fired.extend(step.at.map(|time| time.since(at(0)).as_secs()));
                schedule.next_fire = step.next;
                schedule.missed_times += step.missed;
                schedule.skipped += step.skipped;
            }
        }
    }
    unreachable!("it does not come to rest")
}

#[test]
fn missed_times_follow_their_policy() {
    use MissedPolicy::{All, Once, Skip};
    // An hourly schedule with its first time at 3600.
    let cases: &[(&str, MissedPolicy, u64, &[u64], u64)] = &[
        ("nothing is due", Once, 3_599, &[], 0),
        ("on the dot", Skip, 3_600, &[3_600], 0),
        ("late, but not missed", Skip, 3_660, &[3_600], 0),
        ("one missed, skipped", Skip, 3_661, &[], 1),
        ("one missed, made up for", Once, 3_661, &[3_600], 0),
        ("three missed, skipped", Skip, 12_000, &[], 3),
        ("three missed, made up for once", Once, 12_000, &[10_800], 2),
        ("three missed, all", All(9), 12_000, &[3_600, 7_200, 10_800], 0),
        ("three missed, the newest two", All(2), 12_000, &[7_200, 10_800], 1),
        ("two missed, the third stands for them", Once, 10_810, &[10_800], 2),
        ("two missed and skipped, the third is fresh", Skip, 10_810, &[10_800], 2),
        ("two missed and a fresh one, all", All(1), 10_810, &[7_200, 10_800], 1),
    ];
    for (what, missed, now, expected, left_out) in cases {
        let (fired, missed_times, skipped, after) =
            steps(schedule(3_600, *missed, OverlapPolicy::Skip), *now, 3_600);
        assert_eq!((&fired[..], missed_times, skipped), (*expected, *left_out, 0), "{what}");
        assert!(after.next_fire > Some(at(*now)), "{what}");
    }
}

#[test]
fn overlapping_times_follow_their_policy() {
    let decide_at = |overlap, previous, now| {
        decide(&schedule(60, MissedPolicy::Once, overlap), previous, at(now), every(60))
    };
    let fires = |time, next| {
        ScheduleDecision::Step(ScheduleStep {
            at: Some(at(time)),
            next: Some(at(next)),
            ..ScheduleStep::default()
        })
    };
    assert_eq!(decide_at(OverlapPolicy::Allow, PreviousFiring::Live, 60), fires(60, 120));
    assert_eq!(decide_at(OverlapPolicy::Wait, PreviousFiring::Live, 60), ScheduleDecision::Defer);
    let skips = ScheduleStep { next: Some(at(120)), skipped: 1, ..ScheduleStep::default() };
    assert_eq!(decide_at(OverlapPolicy::Skip, PreviousFiring::Live, 60), ScheduleDecision::Step(skips));
    for overlap in [OverlapPolicy::Allow, OverlapPolicy::Skip, OverlapPolicy::Wait] {
        for previous in [PreviousFiring::Absent, PreviousFiring::Ended(at(59))] {
            assert_eq!(decide_at(overlap, previous, 60), fires(60, 120), "{overlap} {previous:?}");
        }
    }
}

#[test]
fn times_that_waited_become_one_unless_all_are_wanted() {
    let wait = |missed| {
        let previous = PreviousFiring::Ended(at(601));
        decide(&schedule(60, missed, OverlapPolicy::Wait), previous, at(602), every(60))
    };
    let one = ScheduleStep { at: Some(at(600)), next: Some(at(660)), missed: 0, skipped: 9 };
    assert_eq!(wait(MissedPolicy::Once), ScheduleDecision::Step(one));
    assert_eq!(wait(MissedPolicy::Skip), ScheduleDecision::Step(one), "they were held, not missed");
    let first = ScheduleStep { at: Some(at(60)), next: Some(at(120)), ..ScheduleStep::default() };
    assert_eq!(wait(MissedPolicy::All(100)), ScheduleDecision::Step(first));
}

#[test]
fn a_paused_schedule_and_one_that_is_over_do_nothing() {
    let paused = Schedule { paused: true, ..schedule(60, MissedPolicy::Once, OverlapPolicy::Skip) };
    assert_eq!(decide(&paused, PreviousFiring::Absent, at(600), every(60)), ScheduleDecision::Wait);
    let over = Schedule { next_fire: None, ..schedule(60, MissedPolicy::Once, OverlapPolicy::Skip) };
    assert_eq!(decide(&over, PreviousFiring::Absent, at(600), every(60)), ScheduleDecision::Wait);
    let last = schedule(60, MissedPolicy::Once, OverlapPolicy::Skip);
    let step = ScheduleStep { at: Some(at(60)), ..ScheduleStep::default() };
    assert_eq!(decide(&last, PreviousFiring::Absent, at(61), |_| None), ScheduleDecision::Step(step));
}

#[test]
fn ten_days_of_missed_seconds_are_passed_in_bounded_steps() {
    const DAYS: u64 = 10 * 86_400;
    let (fired, missed, _, _) = steps(schedule(1, MissedPolicy::Skip, OverlapPolicy::Skip), DAYS, 1);
    assert_eq!(fired.len() as u64 + missed, DAYS);
    assert_eq!(fired.len() as u64, MISSED_AFTER.as_secs() + 1);
    let (fired, ..) = steps(schedule(1, MissedPolicy::All(1_000), OverlapPolicy::Skip), DAYS, 1);
    assert_eq!(fired.len() as u64, 1_000 + MISSED_AFTER.as_secs() + 1);
}

#[test]
fn a_timetable_that_stands_still_does_not_hang() {
    let decision =
        decide(&schedule(60, MissedPolicy::Once, OverlapPolicy::Skip), PreviousFiring::Absent, at(61), Some);
    let step = ScheduleStep { at: Some(at(60)), ..ScheduleStep::default() };
    assert_eq!(decision, ScheduleDecision::Step(step));
}

#[test]
fn the_words_of_the_policies_are_read_as_they_are_written() {
    for missed in [MissedPolicy::Skip, MissedPolicy::Once, MissedPolicy::All(7)] {
        assert_eq!(missed.to_string().parse(), Ok(missed));
    }
    assert_eq!("all".parse(), Ok(MissedPolicy::All(100)));
    for bad in ["", "never", "all:0", "all:1001", "all:", "ALL"] {
        assert!(bad.parse::<MissedPolicy>().is_err(), "{bad}");
    }
    for overlap in [OverlapPolicy::Allow, OverlapPolicy::Skip, OverlapPolicy::Wait] {
        assert_eq!(overlap.to_string().parse(), Ok(overlap));
    }
}

#[test]
fn firings_have_names_of_their_own() {
    let (a, b) = (TenantId::new("a").unwrap(), TenantId::new("b").unwrap());
    let (x, y) = (ScheduleName::new("x").unwrap(), ScheduleName::new("y").unwrap());
    let ids = [(&a, &x, 0), (&b, &x, 0), (&a, &y, 0), (&a, &x, 1)]
        .map(|(tenant, name, second)| firing_unit_id(tenant, name, at(9), at(second)));
    for (i, id) in ids.iter().enumerate() {
        assert!(!ids[..i].contains(id));
        assert_eq!(id.to_string().as_bytes()[14], b'7', "laid out as a UUIDv7: {id}");
    }
    assert_eq!(firing_unit_id(&a, &x, at(9), at(0)), ids[0]);
    assert_ne!(firing_unit_id(&a, &x, at(8), at(0)), ids[0], "others cannot guess it");
    assert!(ids[3] > ids[0], "by time");
    assert_eq!(firing_batch_id(&TenantId::default(), &x, at(0)).as_str(), "x-20260101T000000Z");
    assert_eq!(firing_batch_id(&a, &x, at(0)).as_str(), "a/x-20260101T000000Z");
    let long = ScheduleName::new("l".repeat(128)).unwrap();
    assert_ne!(firing_batch_id(&a, &long, at(0)), firing_batch_id(&a, &long, at(1)));
}

proptest! {
    /// Under any policy, every due time is fired, skipped or missed, each once and in order.
    #[test]
    fn every_time_is_accounted_for_once(
        period in 1_u64..5_000,
        passed in 0_u64..2_000_000,
        which in 0_u32..3,
        limit in 1_u32..=1_000,
    ) {
        let missed = [MissedPolicy::Skip, MissedPolicy::Once, MissedPolicy::All(limit)][which as usize];
        let (fired, left_out, skipped, after) =
            steps(schedule(period, missed, OverlapPolicy::Skip), passed, period);
        prop_assert!(fired.is_sorted_by(|a, b| a < b), "{fired:?}");
        prop_assert_eq!(fired.len() as u64 + left_out + skipped, passed / period);
        prop_assert!(fired.iter().all(|time| time % period == 0 && *time <= passed));
        prop_assert_eq!(after.next_fire, Some(at((passed / period + 1) * period)));
        let late = fired.iter().filter(|time| passed - **time > MISSED_AFTER.as_secs()).count();
        let most = match missed { MissedPolicy::Skip => 0, MissedPolicy::Once => 1, MissedPolicy::All(limit) => limit };
        prop_assert!(late <= most as usize, "{} late ones of {:?}", late, missed);
    }

    /// With `wait` and with `skip`, two firings are never live at once.
    #[test]
    fn no_two_firings_are_live_at_once(
        period in 1_u64..200,
        takes in 1_u64..500,
        waits: bool,
        all: bool,
    ) {
        let overlap = if waits { OverlapPolicy::Wait } else { OverlapPolicy::Skip };
        let missed = if all { MissedPolicy::All(10) } else { MissedPolicy::Once };
        let mut schedule = schedule(period, missed, overlap);
        let mut ends = None::<u64>;
        for now in 0..3_000 {
            loop {
                let previous = match ends {
                    None => PreviousFiring::Absent,
                    Some(end) if end > now => PreviousFiring::Live,
                    Some(end) => PreviousFiring::Ended(at(end)),
                };
                let ScheduleDecision::Step(step) = decide(&schedule, previous, at(now), every(period)) else {
                    break;
                };
                if step.at.is_some() {
                    prop_assert!(ends.is_none_or(|end| end <= now), "two at once at {}", now);
                    ends = Some(now + takes);
                    schedule.fired += 1;
                }
                schedule.next_fire = step.next;
                schedule.skipped += step.skipped;
                schedule.missed_times += step.missed;
            }
        }
        prop_assert!(schedule.fired > 0);
        // At least as often as runs fit one after another, each with the time to the next firing.
        let fits = 2_999 / (takes.max(1) + period);
        prop_assert!(schedule.fired + 1 >= fits, "{} of {}", schedule.fired, fits);
    }
}
