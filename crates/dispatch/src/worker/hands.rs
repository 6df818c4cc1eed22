//! What a worker holds: what waits, what runs, what has ended and is not acknowledged. Pure.

use std::collections::{BTreeMap, HashMap, VecDeque};

use longshore::UnitId;
use longshore::session::Lease;
use tokio::time::Instant;

use crate::script::Report;
use crate::wire::{Order, Word};

/// What a worker has in its hands.
#[derive(Debug)]
pub(super) struct Hands {
    threads: u32,
    free: u32,
    all: BTreeMap<String, u32>,
    /// Which of each resource are free, by number.
    ids: BTreeMap<String, Vec<u32>>,
    waiting: VecDeque<Waiting>,
    running: HashMap<UnitId, Held>,
    ended: HashMap<Lease, (u64, Box<Report>)>,
    next_end: u64,
}

#[derive(Debug)]
struct Waiting {
    order: Order,
    /// When it must have ended.
    until: Option<Instant>,
}

#[derive(Debug)]
struct Held {
    lease: Lease,
    threads: u32,
    ids: BTreeMap<String, Vec<u32>>,
}

/// A script that is to be begun, with the numbers of the resources that are its own.
#[derive(Debug)]
pub(super) struct Begin {
    pub(super) order: Order,
    pub(super) ids: BTreeMap<String, Vec<u32>>,
    /// When it must have ended.
    pub(super) until: Option<Instant>,
}

impl Hands {
    pub(super) fn new(threads: u32, resources: BTreeMap<String, u32>) -> Self {
        let ids = resources.iter().map(|(name, count)| (name.clone(), (0..*count).rev().collect()));
        Self {
            threads,
            free: threads,
            ids: ids.collect(),
            all: resources,
            waiting: VecDeque::new(),
            running: HashMap::new(),
            ended: HashMap::new(),
            next_end: 0,
        }
    }

    /// Takes an order. The time that it has left passes while it waits, too.
    pub(super) fn take(&mut self, now: Instant, order: Order) {
        let until = order.time_left.and_then(|left| now.checked_add(left));
        self.waiting.push_back(Waiting { order, until });
    }

    /// The next script, if there is room for it. They begin in the order in which they came.
    pub(super) fn begin(&mut self) -> Option<Begin> {
        let order = &self.waiting.front()?.order;
        // What can never fit here the server does not send; if it does, it may as well run.
        let threads = order.threads.min(self.threads);
        let needs = |(name, count): (&String, &u32)| {
            let most = self.all.get(name).copied().unwrap_or(0);
            self.ids.get(name).map_or(0, Vec::len) >= (*count).min(most) as usize
        };
        if threads > self.free || !order.resources.iter().all(needs) {
            return None;
        }
        let Waiting { order, until } = self.waiting.pop_front()?;
        self.free -= threads;
        let mut ids = BTreeMap::new();
        for (name, count) in &order.resources {
            let free = self.ids.entry(name.clone()).or_default();
            let from = free.len().saturating_sub(*count as usize);
            ids.insert(name.clone(), free.split_off(from));
        }
        let held = Held { lease: order.lease, threads, ids: ids.clone() };
        self.running.insert(order.lease.unit, held);
        Some(Begin { order, ids, until })
    }

    /// A script has ended: its report is kept until the server has it.
    pub(super) fn end(&mut self, lease: Lease, report: Report) -> Option<Word> {
        self.leave(lease.unit)?;
        Some(self.end_unbegun(lease, report))
    }

    fn leave(&mut self, unit: UnitId) -> Option<Lease> {
        let held = self.running.remove(&unit)?;
        self.free += held.threads;
        for (name, ids) in held.ids {
            self.ids.entry(name).or_default().extend(ids);
        }
        Some(held.lease)
    }

    /// The server has these ends.
    pub(super) fn recorded(&mut self, leases: &[Lease]) {
        for lease in leases {
            self.ended.remove(lease);
        }
    }

    /// These are not ours any more. Returns those that run and must be ended.
    pub(super) fn forget(&mut self, leases: &[Lease]) -> Vec<UnitId> {
        self.waiting.retain(|waiting| !leases.contains(&waiting.order.lease));
        self.recorded(leases);
        let running = self.running.iter().filter(|(_, held)| leases.contains(&held.lease));
        running.map(|(unit, _)| *unit).collect()
    }

    /// Gives back what waits: these, or all.
    pub(super) fn give_back(&mut self, which: Option<&[Lease]>) -> Vec<Word> {
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let goes = |waiting: &Waiting| which.is_none_or(|all| all.contains(&waiting.order.lease));
        let (back, stay): (VecDeque<Waiting>, _) = waiting.partition(goes);
        self.waiting = stay;
        back.into_iter().map(|waiting| Word::Returned(waiting.order.lease)).collect()
    }

    /// Takes an order away that waits.
    pub(super) fn withdraw(&mut self, unit: UnitId) -> Option<Order> {
        let at = self.waiting.iter().position(|waiting| waiting.order.lease.unit == unit)?;
        self.waiting.remove(at).map(|waiting| waiting.order)
    }

    /// An order that was never begun has ended.
    pub(super) fn end_unbegun(&mut self, lease: Lease, report: Report) -> Word {
        let report = Box::new(report);
        self.ended.insert(lease, (self.next_end, report.clone()));
        self.next_end += 1;
        Word::Ended(lease, report)
    }

    /// Everything, as the server must hear after a loss of the connection.
    pub(super) fn holds(&self) -> Vec<Lease> {
        let waiting = self.waiting.iter().map(|waiting| waiting.order.lease);
        let running = self.running.values().map(|held| held.lease);
        waiting.chain(running).chain(self.ended.keys().copied()).collect()
    }

    /// What has to be said again after a loss of the connection.
    pub(super) fn again(&self) -> Vec<Word> {
        let running = self.running.values().map(|held| Word::Started(held.lease));
        let mut ended: Vec<_> = self.ended.iter().collect();
        ended.sort_by_key(|(_, (at, _))| *at);
        let ended =
            ended.into_iter().map(|(lease, (_, report))| Word::Ended(*lease, report.clone()));
        running.chain(ended).collect()
    }

    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// There is enough ahead: as much as can run at once, and once more.
    pub(super) fn has_ahead(&self) -> bool {
        self.waiting.len() > self.threads as usize * 2
    }

    /// Nothing waits or runs.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Nothing is held at all.
    pub(super) fn is_empty(&self) -> bool {
        self.is_idle() && self.ended.is_empty()
    }
}
