//! Verification: recounts everything that is derived from the units.

use std::collections::BTreeMap;

use longshore_core::store::Violation;
use longshore_core::{BatchId, Counts, SessionId, UnitState};

use super::record::LaneKey;
use super::state::{Index, LaneState, State};

impl State {
    pub(super) fn verify(&self) -> Vec<Violation> {
        let mut found = Violations::default();
        self.verify_holders(&mut found);
        self.verify_lanes(&mut found);
        self.verify_batches(&mut found);
        self.verify_index(&mut found);
        self.verify_ledger(&mut found);
        found.0
    }

    fn verify_holders(&self, found: &mut Violations) {
        for unit in self.units.values().map(|record| &record.unit) {
            let holder = unit.session.and_then(|id| self.sessions.get(&id));
            let held = holder.is_some_and(|session| session.held.contains(&unit.id));
            let leased = unit.state == UnitState::Leased;
            found.expect("one_holder", leased == held && leased == unit.session.is_some(), || {
                format!("unit {} is {} but its holder is {:?}", unit.id, unit.state, unit.session)
            });
        }
        for (id, session) in &self.sessions {
            for unit in &session.held {
                let holder = self.units.get(unit).and_then(|record| record.unit.session);
                found.expect("one_holder", holder == Some(*id), || {
                    format!("session {id} counts unit {unit}, which it does not hold")
                });
            }
        }
    }

    fn verify_lanes(&self, found: &mut Violations) {
        let mut recount: BTreeMap<LaneKey, LaneState> = BTreeMap::new();
        for record in self.units.values() {
            recount.entry(record.lane()).or_default().add(record);
        }
        for (key, lane) in &self.lanes {
            let fresh = recount.remove(key).unwrap_or_default();
            let stored = (lane.counts, lane.bytes, lane.stored, &lane.ready, &lane.capped);
            let truth = (fresh.counts, fresh.bytes, fresh.stored, &fresh.ready, &fresh.capped);
            found.expect("tally_is_exact", stored == truth, || {
                format!("lane {}/{} keeps {:?}, counted {:?}", key.0, key.1, stored.0, truth.0)
            });
        }
        found.expect("tally_is_exact", recount.is_empty(), || "units without a lane".into());
    }

    fn verify_batches(&self, found: &mut Violations) {
        let mut recount: BTreeMap<&BatchId, Counts> = BTreeMap::new();
        for unit in self.units.values().map(|record| &record.unit) {
            if let Some(batch) = &unit.batch {
                *recount.entry(batch).or_default().counter_mut(unit.state) += 1;
            }
        }
        for (id, record) in &self.batches {
            let (batch, mut truth) = (&record.batch, recount.remove(id).unwrap_or_default());
            truth += record.pruned;
            found.expect("tally_is_exact", batch.counts == truth, || {
                format!("batch {id} keeps {:?}, counted {truth:?}", batch.counts)
            });
            let ended = batch.completed_at.is_some();
            found.expect("tally_is_exact", !ended || batch.counts.live() == 0, || {
                format!("batch {id} is {} with {} live units", batch.status, batch.counts.live())
            });
        }
    }

    fn verify_index(&self, found: &mut Violations) {
        let mut fresh = Index::default();
        for record in self.units.values() {
            fresh.add(record);
            let blocked = record.unit.state == UnitState::Blocked;
            found.expect("no_unit_lost", blocked != record.waits_for.is_empty(), || {
                let (unit, waits) = (&record.unit, &record.waits_for);
                format!("unit {} is {} and waits for {waits:?}", unit.id, unit.state)
            });
        }
        found.expect("no_unit_lost", fresh == self.index, || "an index does not match the units".into());
    }

    fn verify_ledger(&self, found: &mut Violations) {
        found.expect("books_are_exact", self.ledger.recount_months() == self.ledger.months, || {
            format!("the months {:?} do not match the calls", self.ledger.months)
        });
        let gone = |session: &SessionId| !self.sessions.contains_key(session);
        for session in self.ledger.open.keys().filter(|session| gone(session)) {
            let what = || format!("session {session} has ended and left calls open");
            found.expect("books_are_exact", false, what);
        }
    }
}

#[derive(Default)]
struct Violations(Vec<Violation>);

impl Violations {
    fn expect(&mut self, rule: &str, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(Violation { rule: rule.to_owned(), found: what() });
        }
    }
}
