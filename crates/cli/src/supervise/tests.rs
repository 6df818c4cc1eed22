//! The roster's decisions, with processes that are only numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::{Deed, Ended, Id, Roster, Rules, Shape, Why};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn rules() -> Rules {
    Rules {
        start_time: at(5),
        start_failures: 3,
        start_window: at(300),
        restart_after: at(1),
        restart_most: at(60),
        drain: at(40),
    }
}

fn shape(begin: u32, min: u32, max: u32) -> Shape {
    Shape { name: "mail".into(), begin, min, max, max_age: None }
}

fn roster(begin: u32, min: u32, max: u32) -> Roster {
    Roster::new(rules(), [shape(begin, min, max)])
}

fn started(deeds: &[Deed]) -> Vec<Id> {
    let id = |deed: &Deed| if let Deed::Start { id, .. } = deed { Some(*id) } else { None };
    deeds.iter().filter_map(id).collect()
}

#[test]
fn as_many_as_wanted_are_started_and_then_nothing_happens() {
    let mut roster = roster(3, 1, 3);
    let deeds = roster.step(at(0));
    let numbers: Vec<u32> = deeds
        .iter()
        .map(|deed| match deed {
            Deed::Start { number, group: 0, .. } => *number,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!((roster.step(at(1)), roster.is_settled()), (vec![], false));
    assert_eq!(roster.due(), Some(at(5)));
    assert_eq!((roster.step(at(5)), roster.is_settled()), (vec![], true));
    assert_eq!((roster.count(), roster.due()), ((3, 3), None));
}

#[test]
fn who_ends_unasked_is_started_again_later_and_later() {
    let mut roster = roster(1, 1, 1);
    let (mut now, mut waits) = (at(0), Vec::new());
    for _ in 0..8 {
        let id = started(&roster.step(now))[0];
        now += at(6);
        roster.step(now);
        let Ended::Again(wait) = roster.ended(id, now) else { panic!("it did start") };
        assert_eq!(started(&roster.step(now)), [], "not before its wait is over");
        assert_eq!(roster.due(), Some(now + wait));
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
    let mut roster = roster(1, 1, 1);
    let first = started(&roster.step(at(0)))[0];
    roster.ended(first, at(6));
    let second = started(&roster.step(at(20)))[0];
    let Ended::Again(wait) = roster.ended(second, at(1000)) else { panic!() };
    assert!(wait <= at(1), "{wait:?}");
}

#[test]
fn a_group_that_fails_to_start_too_often_is_given_up_and_others_go_on() {
    let other = Shape { name: "other".into(), ..shape(1, 1, 1) };
    let mut roster = Roster::new(rules(), [shape(4, 1, 4), other]);
    let mut now = at(0);
    for round in 1.. {
        // All of them fail at once, which counts as one failure.
        let bad: Vec<Id> = started(&roster.step(now)).into_iter().take(4).collect();
        assert_eq!(bad.len(), 4);
        now += at(1);
        let ends: Vec<Ended> = bad.iter().map(|id| roster.ended(*id, now)).collect();
        if round == 3 {
            assert_eq!(ends, [Ended::GivenUp; 4]);
            break;
        }
        assert!(ends.iter().all(|end| matches!(end, Ended::Again(_))), "{ends:?}");
        now += at(10);
    }
    now += at(3600);
    assert_eq!(roster.step(now), []);
    assert!(!roster.is_hopeless() && roster.is_settled(), "the other one runs");
    roster.refresh(now);
    assert_eq!(started(&roster.step(now)).len(), 5, "four again, and the other's successor");
}

#[test]
fn failures_that_are_long_past_do_not_count() {
    let mut roster = roster(1, 1, 1);
    for round in 0..10 {
        let now = at(round * 200);
        let id = started(&roster.step(now))[0];
        assert!(matches!(roster.ended(id, now + at(1)), Ended::Again(_)));
    }
}

#[test]
fn nobody_left_and_nobody_to_come_is_hopeless() {
    let mut roster = roster(1, 1, 1);
    for round in 0..3 {
        assert!(!roster.is_hopeless());
        let id = started(&roster.step(at(round * 20)))[0];
        roster.ended(id, at(round * 20 + 1));
    }
    assert!(roster.is_hopeless());
}

#[test]
fn a_refresh_brings_the_new_one_up_before_the_old_one_goes() {
    let mut roster = roster(2, 2, 2);
    let old = started(&roster.step(at(0)));
    roster.step(at(5));
    roster.refresh(at(10));
    let first = started(&roster.step(at(10)));
    assert_eq!(first.len(), 1, "one at a time");
    assert_eq!(roster.step(at(11)), []);
    assert_eq!(roster.step(at(15)), [Deed::Ask(old[0], Why::Replaced)]);
    assert_eq!(roster.step(at(16)), [], "the next when this one has gone");
    roster.ended(old[0], at(20));
    let second = started(&roster.step(at(20)));
    assert_eq!(second.len(), 1);
    assert_eq!(roster.step(at(25)), [Deed::Ask(old[1], Why::Replaced)]);
    assert!(!roster.is_settled());
    roster.ended(old[1], at(26));
    assert_eq!((roster.step(at(27)), roster.is_settled()), (vec![], true));
}

#[test]
fn a_version_that_does_not_start_leaves_the_old_ones_at_work() {
    let mut roster = roster(2, 2, 2);
    roster.step(at(0));
    roster.step(at(5));
    roster.refresh(at(10));
    let mut now = at(10);
    for _ in 0..3 {
        let id = started(&roster.step(now))[0];
        roster.ended(id, now + at(1));
        now += at(30);
    }
    assert_eq!(roster.step(now), []);
    assert_eq!((roster.count(), roster.is_settled()), ((2, 2), true));
}

#[test]
fn signals_move_the_number_within_its_bounds() {
    let mut roster = roster(2, 1, 3);
    let first = started(&roster.step(at(0)));
    roster.step(at(5));
    roster.more();
    roster.more();
    let third = started(&roster.step(at(6)));
    assert_eq!(third.len(), 1, "three at most");
    for _ in 0..5 {
        roster.fewer();
    }
    assert_eq!(roster.step(at(20)), [Deed::Ask(third[0], Why::TooMany)]);
    assert_eq!(roster.step(at(20)), [Deed::Ask(first[1], Why::TooMany)]);
    assert_eq!(roster.step(at(20)), [], "one at least");
}

#[test]
fn who_is_too_old_or_too_large_is_replaced() {
    let aging = Shape { max_age: Some(at(100)), ..shape(1, 1, 1) };
    let mut roster = Roster::new(rules(), [aging]);
    let old = started(&roster.step(at(0)))[0];
    roster.step(at(5));
    assert_eq!(roster.due(), Some(at(100)));
    let young = started(&roster.step(at(100)))[0];
    assert_eq!(roster.step(at(105)), [Deed::Ask(old, Why::Replaced)]);
    roster.ended(old, at(106));
    roster.replace(young);
    assert_eq!(started(&roster.step(at(110))).len(), 1);
    assert_eq!(roster.step(at(115)), [Deed::Ask(young, Why::Replaced)]);
}

#[test]
fn at_the_end_all_are_asked_and_who_stays_is_killed() {
    let mut roster = roster(2, 1, 2);
    let all = started(&roster.step(at(0)));
    roster.end();
    let asked = roster.step(at(10));
    assert_eq!(asked, all.iter().map(|id| Deed::Ask(*id, Why::Over)).collect::<Vec<_>>());
    assert_eq!(roster.ended(all[0], at(11)), Ended::AsAsked);
    assert_eq!(roster.step(at(49)), []);
    assert_eq!(roster.due(), Some(at(50)));
    assert_eq!(roster.step(at(50)), [Deed::Kill(all[1])]);
    assert_eq!(roster.step(at(51)), [], "once");
    roster.ended(all[1], at(51));
    assert!(roster.is_empty());
    assert_eq!(roster.step(at(100)), [], "nobody comes any more");
}

#[test]
fn in_a_hurry_nobody_is_waited_for_longer_than_the_grace() {
    let mut roster = roster(1, 1, 1);
    let id = started(&roster.step(at(0)))[0];
    roster.end();
    roster.step(at(1));
    roster.hurry(at(2), at(5));
    assert_eq!(roster.step(at(6)), []);
    assert_eq!(roster.step(at(7)), [Deed::Kill(id)]);
}

/// What may happen to a roster.
#[derive(Debug, Clone)]
enum Event {
    Wait(u64),
    Refresh,
    More,
    Fewer,
    Replace(usize),
    /// One that was asked does as it was asked.
    Obey(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        6 => (0_u64..12).prop_map(Event::Wait),
        1 => Just(Event::Refresh),
        1 => Just(Event::More),
        1 => Just(Event::Fewer),
        1 => (0_usize..8).prop_map(Event::Replace),
        3 => (0_usize..8).prop_map(Event::Obey),
    ];
    proptest::collection::vec(event, 1..80)
}

proptest! {
    /// As long as nobody ends unasked, there are never fewer at work than the minimum, never more than
    /// one above the maximum; and whatever was asked, all is as wanted after a while.
    #[test]
    fn it_is_never_below_the_minimum(events in events(), min in 1_u32..4, more in 0_u32..3) {
        let max = min + more;
        let mut roster = roster(min, min, max);
        let mut here: BTreeMap<Id, bool> = BTreeMap::new();
        let mut now = at(0);
        let tail = std::iter::repeat_n([Event::Wait(6), Event::Obey(0)], 60).flatten();
        for event in events.into_iter().chain(tail) {
            match event {
                Event::Wait(seconds) => now += at(seconds),
                Event::Refresh => roster.refresh(now),
                Event::More => roster.more(),
                Event::Fewer => roster.fewer(),
                Event::Replace(nth) => _ = here.keys().nth(nth).map(|id| roster.replace(*id)),
                Event::Obey(nth) => {
                    let asked: Vec<Id> = here.iter().filter(|(_, asked)| **asked).map(|(id, _)| *id).collect();
                    if let Some(id) = asked.get(nth) {
                        prop_assert_eq!(roster.ended(*id, now), Ended::AsAsked);
                        here.remove(id);
                    }
                }
            }
            for deed in roster.step(now) {
                match deed {
                    Deed::Start { id, .. } => _ = here.insert(id, false),
                    Deed::Ask(id, _) => _ = here.insert(id, true),
                    Deed::Kill(id) => {
                        prop_assert!(here[&id], "who was not asked is not killed");
                        roster.ended(id, now);
                        here.remove(&id);
                    }
                }
            }
            let at_work = here.values().filter(|asked| !**asked).count();
            prop_assert!(at_work >= min as usize, "{} at work", at_work);
            prop_assert!(at_work <= max as usize + 1, "{} at work", at_work);
        }
        prop_assert!(roster.is_settled());
    }
}

#[test]
fn other_shapes_change_the_number_and_whoever_is_gone_is_let_go_in_good_order() {
    let mut roster = Roster::new(rules(), [shape(2, 1, 4), shape(1, 1, 1)]);
    assert_eq!(started(&roster.step(at(0))).len(), 3);
    roster.step(at(5));
    roster.more_of(0);
    assert_eq!(started(&roster.step(at(6))).len(), 1);
    roster.step(at(11));
    // The number that somebody chose by hand stays, as far as the new bounds allow.
    roster.reshape(rules(), [shape(2, 1, 2), shape(1, 1, 1), shape(3, 3, 3)]);
    assert_eq!((roster.wanted(0), roster.wanted(1), roster.wanted(2)), (2, 1, 3));
    let deeds = roster.step(at(12));
    assert_eq!(started(&deeds).len(), 3, "the new section");
    assert!(deeds.contains(&Deed::Ask(Id(4), Why::TooMany)), "{deeds:?}");
    roster.ended(Id(4), at(13));
    roster.reshape(rules(), [shape(1, 1, 1)]);
    let mut asked = Vec::new();
    for second in 20..40 {
        for deed in roster.step(at(second)) {
            let Deed::Ask(id, Why::TooMany) = deed else { panic!("{deed:?}") };
            asked.push(id);
            assert_eq!(roster.ended(id, at(second)), Ended::AsAsked);
        }
    }
    assert_eq!((asked.len(), roster.count()), (5, (1, 1)));
    assert!(roster.is_settled() && !roster.is_hopeless());
}
