//! Where to begin looking for ready units when looking from the beginning has become dear.
//!
//! A unit that was claimed leaves its entry in the index of ready units until the table is vacuumed,
//! and the entry counts as a unit to look at until nobody can see it as ready any more. At full
//! speed a claim soon walks over a hundred thousand of them before the first that counts, and under
//! a long-running reader (a backup, a report) they are not even cleared away. So this process
//! measures what looking from the beginning costs, and while it is dear it remembers where it found
//! the last units of each stream and begins there. What appears before that place (a unit
//! given back, one of a higher priority, the first of a stream that had none) is found when it looks
//! from the beginning again: after a multiple of what that costs, or when it finds nothing else.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{MOST, Shape};

/// Below this a claim always looks from the beginning.
const CHEAP: Duration = Duration::from_millis(1);
/// Looking from the beginning takes at most this part of the time.
const SELDOM: u32 = 20;
/// Units this process has taken before it may take a slow answer for a dear one. Fewer cannot have
/// left much behind: the machine was busy.
const ENOUGH: usize = 2_000;

/// Where a claim looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Look {
    /// Everywhere, from the beginning.
    Whole,
    /// In these streams, from where the last units were found.
    Known(Vec<i64>),
}

/// What this process knows of where ready units are.
#[derive(Debug, Default)]
pub(crate) struct Floors(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    looks: HashMap<Shape, Looked>,
    /// The place before which nothing was left, by stream.
    places: HashMap<i64, i64>,
    taken: usize,
}

/// The last look from the beginning.
#[derive(Debug)]
struct Looked {
    streams: Vec<i64>,
    cost: Duration,
    /// What the look before it cost: one slow answer says nothing.
    before: Duration,
    at: Instant,
}

impl Floors {
    fn with<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where a claim of this shape is to look at `now`.
    pub(crate) fn look(&self, shape: Shape, now: Instant) -> Look {
        self.with(|known| {
            let dear = |last: &&Looked| last.cost.min(last.before) >= CHEAP;
            let recent = |last: &&Looked| now.duration_since(last.at) < last.cost * SELDOM;
            match known.looks.get(&shape).filter(dear).filter(recent) {
                Some(last) if known.taken >= ENOUGH => Look::Known(last.streams.clone()),
                _ => Look::Whole,
            }
        })
    }

    /// Remembers a look from the beginning: what it cost the server, and the streams it found.
    pub(crate) fn looked(&self, shape: Shape, cost: Duration, streams: Vec<i64>, now: Instant) {
        self.with(|known| {
            if known.looks.len() > MOST || known.places.len() > MOST {
                known.looks.clear();
                known.places.clear();
            }
            let before = known.looks.get(&shape).map_or(Duration::ZERO, |last| last.cost);
            known.looks.insert(shape, Looked { streams, cost, before, at: now });
        });
    }

    /// The place to begin at in a stream.
    pub(crate) fn place(&self, look: &Look, stream: i64) -> i64 {
        match look {
            Look::Whole => i64::MIN,
            Look::Known(_) => {
                self.with(|known| known.places.get(&stream).copied().unwrap_or(i64::MIN))
            }
        }
    }

    /// Remembers how many units a claim took, and the place in each stream before which it left
    /// nothing.
    pub(crate) fn took(&self, look: &Look, places: impl Iterator<Item = (i64, i64)>, units: usize) {
        self.with(|known| {
            known.taken = known.taken.saturating_add(units);
            for (stream, last) in places {
                let place = known.places.entry(stream).or_insert(last);
                *place = if *look == Look::Whole { last } else { last.max(*place) };
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape(7);
    const DEAR: Duration = Duration::from_millis(10);

    fn busy() -> Floors {
        let floors = Floors::default();
        floors.took(&Look::Whole, [(1, 50)].into_iter(), ENOUGH);
        floors
    }

    #[test]
    fn a_dear_look_is_not_repeated_at_once() {
        let (floors, now) = (busy(), Instant::now());
        floors.looked(SHAPE, DEAR, vec![1], now);
        assert_eq!(floors.look(SHAPE, now), Look::Whole, "once may be chance");
        floors.looked(SHAPE, DEAR, vec![1], now);
        let known = Look::Known(vec![1]);
        assert_eq!(floors.look(SHAPE, now + DEAR), known);
        assert_eq!((floors.place(&known, 1), floors.place(&known, 2)), (50, i64::MIN));
        assert_eq!(floors.look(SHAPE, now + DEAR * SELDOM), Look::Whole);
        assert_eq!(floors.look(Shape(8), now), Look::Whole, "of another claim nothing is known");
    }

    #[test]
    fn a_cheap_look_always_begins_at_the_beginning() {
        let (floors, now) = (busy(), Instant::now());
        for cost in [DEAR, CHEAP / 2] {
            floors.looked(SHAPE, cost, vec![1], now);
        }
        assert_eq!(floors.look(SHAPE, now), Look::Whole);
    }

    #[test]
    fn who_has_hardly_taken_anything_does_not_call_a_slow_answer_dear() {
        let (floors, now) = (Floors::default(), Instant::now());
        for _ in 0..3 {
            floors.looked(SHAPE, DEAR, vec![1], now);
        }
        assert_eq!(floors.look(SHAPE, now), Look::Whole);
    }

    #[test]
    fn a_floor_sinks_only_when_all_was_looked_at() {
        let floors = busy();
        let known = Look::Known(vec![1]);
        floors.took(&known, [(1, 40)].into_iter(), 1);
        assert_eq!(floors.place(&known, 1), 50);
        floors.took(&Look::Whole, [(1, 40)].into_iter(), 1);
        assert_eq!(floors.place(&known, 1), 40);
    }
}
