//! What schedules do with missed and overlapping times.

use std::time::Duration;

use longshore_core::schedule::{
    Decision, GRACE, Missed, NewSchedule, Overlap, Plan, Previous, Schedule, Step, Template,
    batch_of, decide, unit_of,
};
use longshore_core::{Kind, Payload, ScheduleName, TenantId, Timestamp};
use proptest::prelude::*;

/// Seconds after an arbitrary start.
fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(1_767_225_600_000_000) + Duration::from_secs(seconds)
}

/// A schedule that fires first at `at(first)`.
fn schedule(first: u64, missed: Missed, overlap: Overlap) -> Schedule {
    let template = Template::new(Kind::new("work").unwrap(), Payload::from(Vec::new()));
    let (cron, zone) = ("not looked at".to_owned(), "UTC".to_owned());
    let new = NewSchedule {
        name: ScheduleName::new("s").unwrap(),
        tenant: TenantId::default(),
        plan: Plan { cron, zone, missed, overlap, template },
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
        match decide(&schedule, Previous::Gone, at(now), every(period)) {
            Decision::Wait => {
                let (missed, skipped) = (schedule.missed_times, schedule.skipped);
                return (fired, missed, skipped, schedule);
            }
            Decision::Hold => unreachable!("nothing is live"),
            Decision::Step(step) => {
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
    use Missed::{All, Once, Skip};
    // An hourly schedule with its first time at 3600.
    let cases: &[(&str, Missed, u64, &[u64], u64)] = &[
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
            steps(schedule(3_600, *missed, Overlap::Skip), *now, 3_600);
        assert_eq!((&fired[..], missed_times, skipped), (*expected, *left_out, 0), "{what}");
        assert!(after.next_fire > Some(at(*now)), "{what}");
    }
}

#[test]
fn overlapping_times_follow_their_policy() {
    let decide_at = |overlap, previous, now| {
        decide(&schedule(60, Missed::Once, overlap), previous, at(now), every(60))
    };
    let fires = |time, next| {
        Decision::Step(Step { at: Some(at(time)), next: Some(at(next)), ..Step::default() })
    };
    assert_eq!(decide_at(Overlap::Allow, Previous::Live, 60), fires(60, 120));
    assert_eq!(decide_at(Overlap::Wait, Previous::Live, 60), Decision::Hold);
    let skips = Step { next: Some(at(120)), skipped: 1, ..Step::default() };
    assert_eq!(decide_at(Overlap::Skip, Previous::Live, 60), Decision::Step(skips));
    for overlap in [Overlap::Allow, Overlap::Skip, Overlap::Wait] {
        for previous in [Previous::Gone, Previous::Ended(at(59))] {
            assert_eq!(decide_at(overlap, previous, 60), fires(60, 120), "{overlap} {previous:?}");
        }
    }
}

#[test]
fn times_that_waited_become_one_unless_all_are_wanted() {
    let wait = |missed| {
        let previous = Previous::Ended(at(601));
        decide(&schedule(60, missed, Overlap::Wait), previous, at(602), every(60))
    };
    let one = Step { at: Some(at(600)), next: Some(at(660)), missed: 0, skipped: 9 };
    assert_eq!(wait(Missed::Once), Decision::Step(one));
    assert_eq!(wait(Missed::Skip), Decision::Step(one), "they were held, not missed");
    let first = Step { at: Some(at(60)), next: Some(at(120)), ..Step::default() };
    assert_eq!(wait(Missed::All(100)), Decision::Step(first));
}

#[test]
fn a_paused_schedule_and_one_that_is_over_do_nothing() {
    let paused = Schedule { paused: true, ..schedule(60, Missed::Once, Overlap::Skip) };
    assert_eq!(decide(&paused, Previous::Gone, at(600), every(60)), Decision::Wait);
    let over = Schedule { next_fire: None, ..schedule(60, Missed::Once, Overlap::Skip) };
    assert_eq!(decide(&over, Previous::Gone, at(600), every(60)), Decision::Wait);
    let last = schedule(60, Missed::Once, Overlap::Skip);
    let step = Step { at: Some(at(60)), ..Step::default() };
    assert_eq!(decide(&last, Previous::Gone, at(61), |_| None), Decision::Step(step));
}

#[test]
fn ten_days_of_missed_seconds_are_passed_in_bounded_steps() {
    const DAYS: u64 = 10 * 86_400;
    let (fired, missed, _, _) = steps(schedule(1, Missed::Skip, Overlap::Skip), DAYS, 1);
    assert_eq!(fired.len() as u64 + missed, DAYS);
    assert_eq!(fired.len() as u64, GRACE.as_secs() + 1);
    let (fired, ..) = steps(schedule(1, Missed::All(1_000), Overlap::Skip), DAYS, 1);
    assert_eq!(fired.len() as u64, 1_000 + GRACE.as_secs() + 1);
}

#[test]
fn a_timetable_that_stands_still_does_not_hang() {
    let decision = decide(&schedule(60, Missed::Once, Overlap::Skip), Previous::Gone, at(61), Some);
    let step = Step { at: Some(at(60)), ..Step::default() };
    assert_eq!(decision, Decision::Step(step));
}

#[test]
fn the_words_of_the_policies_are_read_as_they_are_written() {
    for missed in [Missed::Skip, Missed::Once, Missed::All(7)] {
        assert_eq!(missed.to_string().parse(), Ok(missed));
    }
    assert_eq!("all".parse(), Ok(Missed::All(100)));
    for bad in ["", "never", "all:0", "all:1001", "all:", "ALL"] {
        assert!(bad.parse::<Missed>().is_err(), "{bad}");
    }
    for overlap in [Overlap::Allow, Overlap::Skip, Overlap::Wait] {
        assert_eq!(overlap.to_string().parse(), Ok(overlap));
    }
}

#[test]
fn firings_have_names_of_their_own() {
    let (a, b) = (TenantId::new("a").unwrap(), TenantId::new("b").unwrap());
    let (x, y) = (ScheduleName::new("x").unwrap(), ScheduleName::new("y").unwrap());
    let ids = [(&a, &x, 0), (&b, &x, 0), (&a, &y, 0), (&a, &x, 1)]
        .map(|(tenant, name, second)| unit_of(tenant, name, at(second)));
    for (i, id) in ids.iter().enumerate() {
        assert!(!ids[..i].contains(id));
        assert_eq!(id.to_string().as_bytes()[14], b'7', "laid out as a UUIDv7: {id}");
    }
    assert_eq!(unit_of(&a, &x, at(0)), ids[0]);
    assert!(ids[3] > ids[0], "by time");
    assert_eq!(batch_of(&TenantId::default(), &x, at(0)).as_str(), "x-20260101T000000Z");
    assert_eq!(batch_of(&a, &x, at(0)).as_str(), "a:x-20260101T000000Z");
    let long = ScheduleName::new("l".repeat(128)).unwrap();
    assert_ne!(batch_of(&a, &long, at(0)), batch_of(&a, &long, at(1)));
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
        let missed = [Missed::Skip, Missed::Once, Missed::All(limit)][which as usize];
        let (fired, left_out, skipped, after) =
            steps(schedule(period, missed, Overlap::Skip), passed, period);
        prop_assert!(fired.is_sorted_by(|a, b| a < b), "{fired:?}");
        prop_assert_eq!(fired.len() as u64 + left_out + skipped, passed / period);
        prop_assert!(fired.iter().all(|time| time % period == 0 && *time <= passed));
        prop_assert_eq!(after.next_fire, Some(at((passed / period + 1) * period)));
        let late = fired.iter().filter(|time| passed - **time > GRACE.as_secs()).count();
        let most = match missed { Missed::Skip => 0, Missed::Once => 1, Missed::All(limit) => limit };
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
        let overlap = if waits { Overlap::Wait } else { Overlap::Skip };
        let missed = if all { Missed::All(10) } else { Missed::Once };
        let mut schedule = schedule(period, missed, overlap);
        let mut ends = None::<u64>;
        for now in 0..3_000 {
            loop {
                let previous = match ends {
                    None => Previous::Gone,
                    Some(end) if end > now => Previous::Live,
                    Some(end) => Previous::Ended(at(end)),
                };
                let Decision::Step(step) = decide(&schedule, previous, at(now), every(period)) else {
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
