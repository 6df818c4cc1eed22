//! The reconciler's decisions, with processes that are only ids.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::{ExitDecision, ProcessId, Reconciler, RestartRules, SectionSpec, StopReason, SupervisorAction};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn rules() -> RestartRules {
    RestartRules {
        min_uptime: at(5),
        start_failures: 3,
        start_window: at(300),
        restart_base: at(1),
        restart_max: at(60),
        drain_timeout: at(40),
    }
}

fn spec(begin: u32, min: u32, max: u32) -> SectionSpec {
    SectionSpec { name: "mail".into(), begin, min, max, max_age: None, drain_timeout: None }
}

fn reconciler(begin: u32, min: u32, max: u32) -> Reconciler {
    Reconciler::new(rules(), [spec(begin, min, max)])
}

fn started(actions: &[SupervisorAction]) -> Vec<ProcessId> {
    let id = |action: &SupervisorAction| {
        if let SupervisorAction::Start { id, .. } = action { Some(*id) } else { None }
    };
    actions.iter().filter_map(id).collect()
}

#[test]
fn as_many_as_wanted_are_started_and_then_nothing_happens() {
    let mut reconciler = reconciler(3, 1, 3);
    let actions = reconciler.step(at(0));
    let numbers: Vec<u32> = actions
        .iter()
        .map(|action| match action {
            SupervisorAction::Start { number, section: 0, .. } => *number,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!((reconciler.step(at(1)), reconciler.is_settled()), (vec![], false));
    assert_eq!(reconciler.due(), Some(at(5)));
    assert_eq!((reconciler.step(at(5)), reconciler.is_settled()), (vec![], true));
    assert_eq!((reconciler.count(), reconciler.due()), ((3, 3), None));
}

#[test]
fn who_ends_unasked_is_started_again_later_and_later() {
    let mut reconciler = reconciler(1, 1, 1);
    let (mut now, mut waits) = (at(0), Vec::new());
    for _ in 0..8 {
        let id = started(&reconciler.step(now))[0];
        now += at(6);
        reconciler.step(now);
        let ExitDecision::Restart(wait) = reconciler.ended(id, now) else { panic!("it did start") };
        assert_eq!(started(&reconciler.step(now)), [], "not before its wait is over");
        assert_eq!(reconciler.due(), Some(now + wait));
        now += wait;
        waits.push(wait);
    }
    for (n, wait) in waits.iter().enumerate() {
        let most = at(1 << n.min(10)).min(at(60));
        assert!((most / 2..=most).contains(wait), "{waits:?}");
    }
}

#[test]
fn a_long_life_makes_up_for_early_ends() {
    let mut reconciler = reconciler(1, 1, 1);
    let first = started(&reconciler.step(at(0)))[0];
    reconciler.ended(first, at(6));
    let second = started(&reconciler.step(at(20)))[0];
    let ExitDecision::Restart(wait) = reconciler.ended(second, at(1000)) else { panic!() };
    assert!(wait <= at(1), "{wait:?}");
}

#[test]
fn a_section_that_fails_to_start_too_often_is_given_up_and_others_go_on() {
    let other = SectionSpec { name: "other".into(), ..spec(1, 1, 1) };
    let mut reconciler = Reconciler::new(rules(), [spec(4, 1, 4), other]);
    let mut now = at(0);
    for round in 1.. {
        // All of them fail at once, which counts as one failure.
        let bad: Vec<ProcessId> = started(&reconciler.step(now)).into_iter().take(4).collect();
        assert_eq!(bad.len(), 4);
        now += at(1);
        let ends: Vec<ExitDecision> = bad.iter().map(|id| reconciler.ended(*id, now)).collect();
        if round == 3 {
            assert_eq!(ends, [ExitDecision::GivenUp; 4]);
            break;
        }
        assert!(ends.iter().all(|end| matches!(end, ExitDecision::Restart(_))), "{ends:?}");
        now += at(10);
    }
    now += at(3600);
    assert_eq!(reconciler.step(now), []);
    assert!(!reconciler.cannot_run() && reconciler.is_settled(), "the other one runs");
    reconciler.refresh(now);
    assert_eq!(started(&reconciler.step(now)).len(), 5, "four again, and the other's successor");
}

#[test]
fn failures_that_are_long_past_do_not_count() {
    let mut reconciler = reconciler(1, 1, 1);
    for round in 0..10 {
        let now = at(round * 200);
        let id = started(&reconciler.step(now))[0];
        assert!(matches!(reconciler.ended(id, now + at(1)), ExitDecision::Restart(_)));
    }
}

#[test]
fn nobody_left_and_nobody_to_come_is_hopeless() {
    let mut reconciler = reconciler(1, 1, 1);
    for round in 0..3 {
        assert!(!reconciler.cannot_run());
        let id = started(&reconciler.step(at(round * 20)))[0];
        reconciler.ended(id, at(round * 20 + 1));
    }
    assert!(reconciler.cannot_run());
}

#[test]
fn a_refresh_brings_the_new_one_up_before_the_old_one_goes() {
    let mut reconciler = reconciler(2, 2, 2);
    let old = started(&reconciler.step(at(0)));
    reconciler.step(at(5));
    reconciler.refresh(at(10));
    let first = started(&reconciler.step(at(10)));
    assert_eq!(first.len(), 1, "one at a time");
    assert_eq!(reconciler.step(at(11)), []);
    assert_eq!(reconciler.step(at(15)), [SupervisorAction::Terminate(old[0], StopReason::Replaced)]);
    assert_eq!(reconciler.step(at(16)), [], "the next when this one has gone");
    reconciler.ended(old[0], at(20));
    let second = started(&reconciler.step(at(20)));
    assert_eq!(second.len(), 1);
    assert_eq!(reconciler.step(at(25)), [SupervisorAction::Terminate(old[1], StopReason::Replaced)]);
    assert!(!reconciler.is_settled());
    reconciler.ended(old[1], at(26));
    assert_eq!((reconciler.step(at(27)), reconciler.is_settled()), (vec![], true));
}

#[test]
fn a_version_that_does_not_start_leaves_the_old_ones_at_work() {
    let mut reconciler = reconciler(2, 2, 2);
    reconciler.step(at(0));
    reconciler.step(at(5));
    reconciler.refresh(at(10));
    let mut now = at(10);
    for _ in 0..3 {
        let id = started(&reconciler.step(now))[0];
        reconciler.ended(id, now + at(1));
        now += at(30);
    }
    assert_eq!(reconciler.step(now), []);
    assert_eq!((reconciler.count(), reconciler.is_settled()), ((2, 2), true));
}

#[test]
fn signals_move_the_number_within_its_bounds() {
    let mut reconciler = reconciler(2, 1, 3);
    let first = started(&reconciler.step(at(0)));
    reconciler.step(at(5));
    reconciler.scale_up_all();
    reconciler.scale_up_all();
    let third = started(&reconciler.step(at(6)));
    assert_eq!(third.len(), 1, "three at most");
    for _ in 0..5 {
        reconciler.scale_down_all();
    }
    assert_eq!(reconciler.step(at(20)), [SupervisorAction::Terminate(third[0], StopReason::TooMany)]);
    assert_eq!(reconciler.step(at(20)), [SupervisorAction::Terminate(first[1], StopReason::TooMany)]);
    assert_eq!(reconciler.step(at(20)), [], "one at least");
}

#[test]
fn who_is_too_old_or_too_large_is_replaced() {
    let aging = SectionSpec { max_age: Some(at(100)), ..spec(1, 1, 1) };
    let mut reconciler = Reconciler::new(rules(), [aging]);
    let old = started(&reconciler.step(at(0)))[0];
    reconciler.step(at(5));
    assert_eq!(reconciler.due(), Some(at(100)));
    let young = started(&reconciler.step(at(100)))[0];
    assert_eq!(reconciler.step(at(105)), [SupervisorAction::Terminate(old, StopReason::Replaced)]);
    reconciler.ended(old, at(106));
    reconciler.replace(young);
    assert_eq!(started(&reconciler.step(at(110))).len(), 1);
    assert_eq!(reconciler.step(at(115)), [SupervisorAction::Terminate(young, StopReason::Replaced)]);
}

#[test]
fn at_the_end_all_are_asked_and_who_stays_is_killed() {
    let mut reconciler = reconciler(2, 1, 2);
    let all = started(&reconciler.step(at(0)));
    reconciler.end();
    let asked = reconciler.step(at(10));
    assert_eq!(
        asked,
        all.iter().map(|id| SupervisorAction::Terminate(*id, StopReason::ShuttingDown)).collect::<Vec<_>>()
    );
    assert_eq!(reconciler.ended(all[0], at(11)), ExitDecision::Expected);
    assert_eq!(reconciler.step(at(49)), []);
    assert_eq!(reconciler.due(), Some(at(50)));
    assert_eq!(reconciler.step(at(50)), [SupervisorAction::Kill(all[1])]);
    assert_eq!(reconciler.step(at(51)), [], "once");
    reconciler.ended(all[1], at(51));
    assert!(reconciler.is_empty());
    assert_eq!(reconciler.step(at(100)), [], "nothing is started any more");
}

#[test]
fn in_a_hurry_nobody_is_waited_for_longer_than_the_grace() {
    let mut reconciler = reconciler(1, 1, 1);
    let id = started(&reconciler.step(at(0)))[0];
    reconciler.end();
    reconciler.step(at(1));
    reconciler.shorten_drain(at(2), at(5));
    assert_eq!(reconciler.step(at(6)), []);
    assert_eq!(reconciler.step(at(7)), [SupervisorAction::Kill(id)]);
}

/// What may happen to a reconciler.
#[derive(Debug, Clone)]
enum ReconcilerEvent {
    Wait(u64),
    Refresh,
    ScaleUp,
    ScaleDown,
    Replace(usize),
    /// A process that was told to stop stops.
    Obey(usize),
}

fn events() -> impl Strategy<Value = Vec<ReconcilerEvent>> {
    let event = prop_oneof![
        6 => (0_u64..12).prop_map(ReconcilerEvent::Wait),
        1 => Just(ReconcilerEvent::Refresh),
        1 => Just(ReconcilerEvent::ScaleUp),
        1 => Just(ReconcilerEvent::ScaleDown),
        1 => (0_usize..8).prop_map(ReconcilerEvent::Replace),
        3 => (0_usize..8).prop_map(ReconcilerEvent::Obey),
    ];
    proptest::collection::vec(event, 1..80)
}

proptest! {
    /// Unless a process ends unexpectedly, there are never fewer running than the minimum and never
    /// more than one above the maximum; and whatever was requested, all is settled after a while.
    #[test]
    fn it_is_never_below_the_minimum(events in events(), min in 1_u32..4, more in 0_u32..3) {
        let max = min + more;
        let mut reconciler = reconciler(min, min, max);
        let mut here: BTreeMap<ProcessId, bool> = BTreeMap::new();
        let mut now = at(0);
        let tail = std::iter::repeat_n([ReconcilerEvent::Wait(6), ReconcilerEvent::Obey(0)], 60).flatten();
        for event in events.into_iter().chain(tail) {
            match event {
                ReconcilerEvent::Wait(seconds) => now += at(seconds),
                ReconcilerEvent::Refresh => reconciler.refresh(now),
                ReconcilerEvent::ScaleUp => reconciler.scale_up_all(),
                ReconcilerEvent::ScaleDown => reconciler.scale_down_all(),
                ReconcilerEvent::Replace(nth) => _ = here.keys().nth(nth).map(|id| reconciler.replace(*id)),
                ReconcilerEvent::Obey(nth) => {
                    let asked: Vec<ProcessId> = here.iter().filter(|(_, asked)| **asked).map(|(id, _)| *id).collect();
                    if let Some(id) = asked.get(nth) {
                        prop_assert_eq!(reconciler.ended(*id, now), ExitDecision::Expected);
                        here.remove(id);
                    }
                }
            }
            for action in reconciler.step(now) {
                match action {
                    SupervisorAction::Start { id, .. } => _ = here.insert(id, false),
                    SupervisorAction::Terminate(id, _) => _ = here.insert(id, true),
                    SupervisorAction::Kill(id) => {
                        prop_assert!(here[&id], "only a process that was told to stop is killed");
                        reconciler.ended(id, now);
                        here.remove(&id);
                    }
                }
            }
            let at_work = here.values().filter(|asked| !**asked).count();
            prop_assert!(at_work >= min as usize, "{} at work", at_work);
            prop_assert!(at_work <= max as usize + 1, "{} at work", at_work);
        }
        prop_assert!(reconciler.is_settled());
    }
}

#[test]
fn other_sections_change_the_number_and_whoever_is_gone_is_let_go_in_good_order() {
    let mut reconciler = Reconciler::new(rules(), [spec(2, 1, 4), spec(1, 1, 1)]);
    assert_eq!(started(&reconciler.step(at(0))).len(), 3);
    reconciler.step(at(5));
    reconciler.scale_up(0);
    assert_eq!(started(&reconciler.step(at(6))).len(), 1);
    reconciler.step(at(11));
    // A number that was chosen by hand stays, as far as the new bounds allow.
    reconciler.update_sections(rules(), [spec(2, 1, 2), spec(1, 1, 1), spec(3, 3, 3)]);
    assert_eq!((reconciler.wanted(0), reconciler.wanted(1), reconciler.wanted(2)), (2, 1, 3));
    let actions = reconciler.step(at(12));
    assert_eq!(started(&actions).len(), 3, "the new section");
    assert!(actions.contains(&SupervisorAction::Terminate(ProcessId(4), StopReason::TooMany)), "{actions:?}");
    reconciler.ended(ProcessId(4), at(13));
    reconciler.update_sections(rules(), [spec(1, 1, 1)]);
    let mut asked = Vec::new();
    for second in 20..40 {
        for action in reconciler.step(at(second)) {
            let SupervisorAction::Terminate(id, StopReason::TooMany) = action else { panic!("{action:?}") };
            asked.push(id);
            assert_eq!(reconciler.ended(id, at(second)), ExitDecision::Expected);
        }
    }
    assert_eq!((asked.len(), reconciler.count()), (5, (1, 1)));
    assert!(reconciler.is_settled() && !reconciler.cannot_run());
}
