//! How a round of a claim is divided: so many units of each stream.

use std::collections::BTreeMap;

use longshore_core::fair::{LaneShare, turn};

use super::fit::Served;
use super::lanes::Lanes;
use super::rows::Taken;
use crate::turns::Turns;

/// What one round asks for.
pub(super) struct Plan {
    /// Whose turn it is, as positions in [`Lanes::lanes`].
    pub(super) order: Vec<usize>,
    /// What each stream is asked for.
    pub(super) wants: Vec<Want>,
    /// Where the lanes stood before.
    pub(super) before: Vec<LaneShare>,
}

/// What one stream is asked for.
pub(super) struct Want {
    /// Which, as a position in [`Lanes::sources`].
    pub(super) source: usize,
    /// How many units in all.
    pub(super) units: u64,
    /// How many of them, the first, have a free slot.
    pub(super) started: u64,
}

/// Takes turns among lanes, within what caps allow.
pub(super) struct Rota<'l> {
    lanes: &'l Lanes,
    pub(super) shares: Vec<LaneShare>,
    rooms: Vec<u64>,
}

impl<'l> Rota<'l> {
    /// Begins where `shares` says.
    pub(super) fn new(lanes: &'l Lanes, shares: Vec<LaneShare>) -> Self {
        Self { lanes, shares, rooms: lanes.rooms.clone() }
    }

    /// Whose turn it is.
    pub(super) fn next(&self) -> Option<usize> {
        turn(self.shares.iter())
    }

    /// The lane gives a unit: its tenant's other lanes have less room, too.
    pub(super) fn serve(&mut self, at: usize) {
        self.shares[at].serve();
        let Some(tenant) = self.lanes.lanes[at].tenant else { return };
        self.rooms[tenant] = self.rooms[tenant].saturating_sub(1);
        for (lane, share) in self.lanes.lanes.iter().zip(&mut self.shares) {
            if lane.tenant == Some(tenant) {
                share.available = share.available.min(self.rooms[tenant]);
            }
        }
    }

    /// The lane gives nothing more.
    pub(super) fn leave(&mut self, at: usize) {
        self.shares[at].available = 0;
    }
}

impl Plan {
    /// Divides `wanted` units, of which the first `free` can start, and `spare` more by the lanes'
    /// shares.
    pub(super) fn make(turns: &Turns, lanes: &Lanes, free: u64, wanted: u64, spare: u64) -> Self {
        let shares = lanes.lanes.iter().map(|lane| {
            let window = u64::try_from(lane.window.len()).unwrap_or(u64::MAX);
            let room = match lanes.room(lane) {
                0 => 0,
                room => room.saturating_add(spare),
            };
            (lane.num, lane.share(window.min(room)))
        });
        let mut shares: Vec<(i64, LaneShare)> = shares.collect();
        turns.plan(&mut shares, |shares| {
            let before: Vec<LaneShare> = shares.iter().map(|(_, share)| *share).collect();
            let mut rota = Rota::new(lanes, before.clone());
            let order = order(&mut rota, free, wanted, spare);
            for ((_, share), after) in shares.iter_mut().zip(&rota.shares) {
                share.pass = after.pass;
            }
            Self { wants: wants(lanes, &order, free), order, before }
        })
    }

    /// The streams that gave some, and fewer than they were asked for: all they have, or all that
    /// others do not hold.
    pub(super) fn short_of(&self, lanes: &Lanes, rows: &[Taken]) -> Vec<i64> {
        let short = |want: &&Want| {
            let found = rows.iter().filter(|row| row.source == want.source).count() as u64;
            found > 0 && found < want.units
        };
        let short = self.wants.iter().filter(short);
        short.map(|want| lanes.sources[want.source].stream.num).collect()
    }

    /// Gives back the turns of units that could not be taken.
    pub(super) fn settle(&self, turns: &Turns, lanes: &mut Lanes, served: &Served) {
        for (at, lane) in lanes.lanes.iter_mut().enumerate() {
            let planned = self.order.iter().filter(|one| **one == at).count();
            let planned = u64::try_from(planned).unwrap_or(u64::MAX);
            let given = served.units[at];
            lane.room = lane.room.saturating_sub(given);
            if let Some(tenant) = lane.tenant {
                lanes.rooms[tenant] = lanes.rooms[tenant].saturating_sub(given);
            }
            if planned > given {
                turns.refund(lane.num, lane.weight, planned - given);
            }
        }
    }
}

fn order(rota: &mut Rota<'_>, free: u64, wanted: u64, spare: u64) -> Vec<usize> {
    let total = wanted + spare;
    // Nothing is claimed ahead from a capped lane; how many slots spares would need nobody knows.
    let free = if spare > 0 && free > 0 { total } else { free };
    let mut order = Vec::new();
    let mut used = 0;
    while used < total {
        let Some(at) = rota.next() else { break };
        if used >= free && rota.lanes.lanes[at].capped {
            rota.leave(at);
            continue;
        }
        rota.serve(at);
        order.push(at);
        used += 1;
    }
    order
}

fn wants(lanes: &Lanes, order: &[usize], free: u64) -> Vec<Want> {
    let mut next: Vec<usize> = vec![0; lanes.lanes.len()];
    let mut wants: BTreeMap<usize, Want> = BTreeMap::new();
    for (turn, at) in (0_u64..).zip(order) {
        let Some(source) = lanes.lanes[*at].window.get(next[*at]).copied() else { continue };
        next[*at] += 1;
        let want = wants.entry(source).or_insert(Want { source, units: 0, started: 0 });
        want.units += 1;
        want.started += u64::from(turn < free);
    }
    wants.into_values().collect()
}
