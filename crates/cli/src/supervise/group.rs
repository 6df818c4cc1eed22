//! Processes of one sort, for [`super::roster`]. Pure.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::roster::{Deed, Ended, Id, Rules, Shape, Why};

/// Processes that are alike.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) shape: Shape,
    pub(super) wanted: u32,
    pub(super) processes: Vec<Process>,
    pub(super) given_up: bool,
    /// Raised by each failure, so that many which fail together count as one.
    pub(super) round: u64,
    /// When starts failed lately.
    failures: Vec<Duration>,
    /// Ends in a row that nobody had asked for, each soon after the start.
    streak: u32,
    /// Nothing is started before.
    pub(super) not_before: Duration,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) id: Id,
    pub(super) state: State,
    /// To be replaced, whatever its generation.
    pub(super) stale: bool,
    number: u32,
    generation: u64,
    round: u64,
    since: Duration,
}

/// Where it is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Too young to say that it works.
    Starting,
    /// It works.
    Up,
    /// It was asked to end, and is killed at `until`.
    Ending { until: Duration, killed: bool },
}

impl Process {
    pub(super) fn new(id: Id, number: u32, since: Duration, generation: u64, round: u64) -> Self {
        Self { id, state: State::Starting, stale: false, number, generation, round, since }
    }

    pub(super) fn is_ending(&self) -> bool {
        matches!(self.state, State::Ending { .. })
    }

    pub(super) fn ask(&mut self, why: Why, now: Duration, rules: &Rules) -> Deed {
        self.state = State::Ending { until: now + rules.drain, killed: false };
        Deed::Ask(self.id, why)
    }

    fn is_old(&self, generation: u64) -> bool {
        self.stale || self.generation < generation
    }
}

impl Group {
    pub(super) fn new(shape: Shape) -> Self {
        Self {
            wanted: shape.begin,
            shape,
            processes: Vec::new(),
            given_up: false,
            round: 0,
            failures: Vec::new(),
            streak: 0,
            not_before: Duration::ZERO,
        }
    }

    /// Another shape; who changed the number by hand keeps theirs unless it was written anew.
    pub(super) fn reshape(&mut self, shape: Shape) {
        if shape.begin != self.shape.begin {
            self.wanted = shape.begin;
        }
        self.wanted = self.wanted.clamp(shape.min, shape.max);
        self.shape = shape;
    }

    pub(super) fn more(&mut self) {
        self.wanted = (self.wanted + 1).min(self.shape.max);
    }

    pub(super) fn fewer(&mut self) {
        self.wanted = self.wanted.saturating_sub(1).max(self.shape.min);
    }

    /// The young become grown, the grown too old.
    pub(super) fn grow_up(&mut self, now: Duration, rules: &Rules) {
        for process in &mut self.processes {
            let age = now.saturating_sub(process.since);
            if process.state == State::Starting && age >= rules.start_time {
                process.state = State::Up;
            }
            process.stale |= self.shape.max_age.is_some_and(|most| age >= most);
        }
    }

    /// Ends those who were asked and did not.
    pub(super) fn overdue(&mut self, now: Duration) -> Vec<Deed> {
        let mut deeds = Vec::new();
        for process in &mut self.processes {
            if let State::Ending { until, killed: killed @ false } = &mut process.state
                && *until <= now
            {
                *killed = true;
                deeds.push(Deed::Kill(process.id));
            }
        }
        deeds
    }

    /// How many are to be started now. One more than wanted, if somebody is to be replaced: the new one
    /// comes before the old one goes.
    pub(super) fn missing(&self, now: Duration, generation: u64) -> usize {
        if self.given_up || now < self.not_before {
            return 0;
        }
        self.lacking(generation)
    }

    fn lacking(&self, generation: u64) -> usize {
        let here = self.here().count();
        let wanted = self.wanted as usize;
        let replaces = self.here().any(|process| process.is_old(generation));
        let is_calm = self.processes.iter().all(|process| process.state == State::Up);
        match here {
            _ if here < wanted => wanted - here,
            _ if here == wanted && replaces && is_calm => 1,
            _ => 0,
        }
    }

    /// Asks one to end if there are more than wanted, the old ones first; but only when whoever is to
    /// take its place is up.
    pub(super) fn spare(&mut self, now: Duration, generation: u64, rules: &Rules) -> Option<Deed> {
        let here = self.here().count();
        let is_young = self.here().any(|process| process.state == State::Starting);
        if here <= self.wanted as usize {
            return None;
        }
        let old = self.here().filter(|process| process.is_old(generation)).map(|old| old.id).min();
        let (id, why) = match old {
            Some(_) if is_young => return None,
            Some(id) => (id, Why::Replaced),
            None => (self.here().map(|process| process.id).max()?, Why::TooMany),
        };
        let process = self.processes.iter_mut().find(|process| process.id == id)?;
        Some(process.ask(why, now, rules))
    }

    /// Those who were not asked to end.
    fn here(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|process| !process.is_ending())
    }

    pub(super) fn free_number(&self) -> u32 {
        let taken = |number: &u32| self.processes.iter().any(|process| process.number == *number);
        (1..).find(|number| !taken(number)).unwrap_or(u32::MAX)
    }

    /// One has ended.
    pub(super) fn lost(&mut self, process: &Process, now: Duration, rules: &Rules) -> Ended {
        if process.is_ending() {
            return Ended::AsAsked;
        }
        let again = |group: &Self| Ended::Again(group.not_before.saturating_sub(now));
        if process.round < self.round {
            return if self.given_up { Ended::GivenUp } else { again(self) };
        }
        self.round += 1;
        let age = now.saturating_sub(process.since);
        if age >= rules.restart_most {
            self.streak = 0;
        }
        self.streak += 1;
        self.not_before = now + self.wait(rules);
        if age < rules.start_time {
            self.failures.push(now);
            self.failures.retain(|at| now.saturating_sub(*at) <= rules.start_window);
            if self.failures.len() >= rules.start_failures as usize {
                self.given_up = true;
                return Ended::GivenUp;
            }
        }
        again(self)
    }

    /// Doubles with each restart in a row; between half of it and all of it, so that groups which fell
    /// together do not rise together.
    fn wait(&self, rules: &Rules) -> Duration {
        let doubled = 2_u32.saturating_pow(self.streak.saturating_sub(1));
        let wait = rules.restart_after.saturating_mul(doubled).min(rules.restart_most);
        let mut hasher = DefaultHasher::new();
        (&self.shape.name, self.round, std::process::id()).hash(&mut hasher);
        let part = u32::try_from(hasher.finish() % 1000).unwrap_or(0);
        wait / 2 + wait / 2000 * part
    }

    /// Starts may be tried at once, whatever was.
    pub(super) fn forgive(&mut self, now: Duration) {
        self.given_up = false;
        self.failures.clear();
        self.streak = 0;
        self.round += 1;
        self.not_before = self.not_before.min(now);
    }

    /// Whether somebody is to be started as soon as that may be.
    pub(super) fn is_short(&self, generation: u64) -> bool {
        !self.given_up && self.lacking(generation) > 0
    }

    /// When processes change by themselves.
    pub(super) fn ripe(&self, rules: &Rules) -> impl Iterator<Item = Duration> {
        self.processes.iter().filter_map(|process| match process.state {
            State::Starting => Some(process.since + rules.start_time),
            State::Up if process.stale => None,
            State::Up => Some(process.since + self.shape.max_age?),
            State::Ending { killed: true, .. } => None,
            State::Ending { until, .. } => Some(until),
        })
    }

    /// Whether all is as it should be, or cannot be helped.
    pub(super) fn is_settled(&self, generation: u64) -> bool {
        let is_done = |process: &Process| process.state == State::Up && !process.is_old(generation);
        let is_whole = self.processes.len() == self.wanted as usize;
        let rests = self.processes.iter().all(|process| process.state == State::Up);
        (self.given_up && rests) || (is_whole && self.processes.iter().all(is_done))
    }
}
