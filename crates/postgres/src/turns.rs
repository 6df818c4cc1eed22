//! Whose turn it is among lanes (stride scheduling): kept in this process, fair by itself.
//!
//! A sum of fair shares is fair, so processes need not tell each other. A lane that had nothing to
//! give earns no credit by that: when it has something again, it joins level with the one that is
//! next. Only lanes of the same kind of claim count: others are served by other workers, faster or
//! slower.
//!
//! A claim is charged when it is planned and gets back what it could not take. So of several claims
//! that run at once each begins where the one before it will end.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use longshore_core::fair::{LaneShare, STRIDE, entry_pass};
use longshore_core::store::{Claim, Queues};
use longshore_core::{BatchId, Kind, QueueName, Scope};

mod floors;

pub(crate) use floors::{Floors, Look};

/// Lanes and kinds of claims remembered at most; beyond it all begin level again.
const MOST: usize = 10_000;

/// The places of lanes in the order of turns, and what this process knows of where to look.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    places: Mutex<Places>,
    pub(crate) floors: Floors,
}

#[derive(Debug, Default)]
struct Places {
    passes: HashMap<i64, u64>,
    /// The lanes that had something left after the last claim of each kind.
    open: HashMap<Shape, BTreeSet<i64>>,
    /// The kinds of claims that last came upon something to be weighed.
    weighed: HashSet<Shape>,
}

/// What a claim asks for, apart from how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Shape(u64);

impl Shape {
    /// The shape of a claim.
    pub(crate) fn of(claim: &Claim) -> Self {
        let tenant = match &claim.scope {
            Scope::All => None,
            Scope::Tenant(tenant) => Some(tenant.as_str()),
        };
        let queues: Option<Vec<&str>> = match &claim.queues {
            Queues::All => None,
            Queues::Named(names) => Some(names.iter().map(QueueName::as_str).collect()),
        };
        let batch = claim.batch.as_ref().map(BatchId::as_str);
        let kinds: Vec<&str> = claim.kinds.iter().map(Kind::as_str).collect();
        let mut hasher = DefaultHasher::new();
        (tenant, queues, batch, kinds).hash(&mut hasher);
        Self(hasher.finish())
    }
}

impl Turns {
    fn with<T>(&self, change: impl FnOnce(&mut Places) -> T) -> T {
        change(&mut self.places.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The places of these lanes, as a claim begins: those that had nothing to give at the last
    /// one of its kind join level with the others.
    pub(crate) fn enter(&self, shape: Shape, lanes: &[i64]) {
        self.with(|places| {
            if places.passes.len().max(places.open.len()).max(places.weighed.len()) > MOST {
                *places = Places::default();
            }
            let Places { passes, open, .. } = places;
            let none = BTreeSet::new();
            let open = open.get(&shape).unwrap_or(&none);
            let pass = |lane: &i64| passes.get(lane).copied().unwrap_or(0);
            let settled = lanes.iter().filter(|lane| open.contains(lane)).map(pass).min();
            let level = settled.or_else(|| lanes.iter().map(pass).max());
            let joined: Vec<(i64, u64)> = lanes
                .iter()
                .filter(|lane| !open.contains(lane))
                .map(|lane| (*lane, entry_pass(pass(lane), level)))
                .collect();
            passes.extend(joined);
        });
    }

    /// Lets `plan` move the places of these lanes, alone.
    pub(crate) fn plan<T>(
        &self,
        lanes: &mut [(i64, LaneShare)],
        plan: impl FnOnce(&mut [(i64, LaneShare)]) -> T,
    ) -> T {
        self.with(|places| {
            for (lane, share) in lanes.iter_mut() {
                share.pass = places.passes.get(lane).copied().unwrap_or(0);
            }
            let planned = plan(lanes);
            places.passes.extend(lanes.iter().map(|(lane, share)| (*lane, share.pass)));
            planned
        })
    }

    /// Charges a lane that was alone. Nobody was to be weighed against it, but who was served a
    /// moment before, or is by another kind of claim, must not count as ahead of it for ever.
    pub(crate) fn charge(&self, lane: i64, weight: u32, units: u64) {
        let step = (STRIDE / u64::from(weight.max(1))).max(1);
        self.with(|places| {
            let pass = places.passes.entry(lane).or_default();
            *pass = pass.saturating_add(units.saturating_mul(step));
        });
    }

    /// Notes whether a claim came upon more than one stream of plain units.
    pub(crate) fn note_weighed(&self, shape: Shape, weighed: bool) {
        self.with(|places| match weighed {
            true => places.weighed.insert(shape),
            false => places.weighed.remove(&shape),
        });
    }

    /// Whether the last claim of this kind did.
    pub(crate) fn was_weighed(&self, shape: Shape) -> bool {
        self.with(|places| places.weighed.contains(&shape))
    }

    /// Gives a lane back what was planned and not taken.
    pub(crate) fn refund(&self, lane: i64, weight: u32, units: u64) {
        let step = (STRIDE / u64::from(weight.max(1))).max(1);
        self.with(|places| {
            if let Some(pass) = places.passes.get_mut(&lane) {
                *pass = pass.saturating_sub(units.saturating_mul(step));
            }
        });
    }

    /// Remembers which lanes have something left.
    pub(crate) fn leave(&self, shape: Shape, open: BTreeSet<i64>) {
        self.with(|places| places.open.insert(shape, open));
    }
}

#[cfg(test)]
mod tests {
    use longshore_core::fair::turn;

    use super::*;

    const SHAPE: Shape = Shape(1);

    fn serve(turns: &Turns, lanes: &[i64], units: usize) -> Vec<i64> {
        let share = |lane: &i64| (*lane, LaneShare { pass: 0, weight: 1, available: 1_000 });
        let mut shares: Vec<_> = lanes.iter().map(share).collect();
        turns.plan(&mut shares, |shares| {
            let mut served = Vec::new();
            for _ in 0..units {
                let at = turn(shares.iter().map(|(_, share)| share)).unwrap();
                shares[at].1.serve();
                served.push(shares[at].0);
            }
            served
        })
    }

    fn count(served: &[i64], lane: i64) -> usize {
        served.iter().filter(|one| **one == lane).count()
    }

    #[test]
    fn who_was_away_joins_level() {
        let turns = Turns::default();
        turns.enter(SHAPE, &[1, 2]);
        serve(&turns, &[1, 2], 100);
        turns.leave(SHAPE, BTreeSet::from([1, 2]));
        turns.enter(SHAPE, &[1, 2, 3]);
        let served = serve(&turns, &[1, 2, 3], 30);
        assert_eq!([count(&served, 1), count(&served, 2), count(&served, 3)], [10, 10, 10]);
    }

    #[test]
    fn who_ran_ahead_does_not_get_back_by_leaving() {
        let turns = Turns::default();
        turns.enter(SHAPE, &[1, 2]);
        serve(&turns, &[1], 50);
        turns.leave(SHAPE, BTreeSet::from([2]));
        turns.enter(SHAPE, &[1, 2]);
        assert_eq!(count(&serve(&turns, &[1, 2], 50), 1), 0);
    }

    #[test]
    fn who_was_served_alone_is_charged_as_among_others() {
        let turns = Turns::default();
        turns.enter(SHAPE, &[1, 2]);
        serve(&turns, &[2], 50);
        turns.enter(SHAPE, &[1]);
        turns.charge(1, 1, 200);
        turns.leave(SHAPE, BTreeSet::from([1]));
        turns.enter(SHAPE, &[1, 2]);
        assert_eq!(count(&serve(&turns, &[1, 2], 50), 1), 25, "what 2 had first is forgotten");
    }

    #[test]
    fn what_was_not_taken_is_given_back() {
        let turns = Turns::default();
        turns.enter(SHAPE, &[1, 2]);
        serve(&turns, &[1, 2], 20);
        turns.refund(1, 1, 10);
        assert_eq!(count(&serve(&turns, &[1, 2], 10), 1), 10);
    }
}
