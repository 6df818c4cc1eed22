//! Who should run, and what is to be done about it. Pure: processes are numbers here, and time is a
//! parameter.
//!
//! What happened is told by [`Roster::ended`] and the like; [`Roster::step`] says what follows. It may be
//! asked at any time, and repeats nothing.

use std::time::Duration;

use super::group::{Group, Process, State};

/// When processes are started, started again and given up. Times are since the supervisor began.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// What ends sooner after its start has failed to start.
    pub start_time: Duration,
    /// After so many failures to start …
    pub start_failures: u32,
    /// … within so long, no more is tried.
    pub start_window: Duration,
    /// The wait before the first restart; it doubles with each.
    pub restart_after: Duration,
    /// The longest.
    pub restart_most: Duration,
    /// What was asked to end is killed after so long.
    pub drain: Duration,
}

/// How many processes of one sort there should be.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// What they are called.
    pub name: String,
    /// How many at first.
    pub begin: u32,
    /// Never fewer are wanted, …
    pub min: u32,
    /// … nor more.
    pub max: u32,
    /// An older process is replaced.
    pub max_age: Option<Duration>,
}

impl Shape {
    /// The same, of which nobody is wanted any more.
    pub fn gone(&self) -> Self {
        Self { begin: 0, min: 0, max: 0, ..self.clone() }
    }
}

/// One process of one life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u64);

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// Start a process of this group.
    Start {
        /// It will be known as this.
        id: Id,
        /// Which group.
        group: usize,
        /// Its number there, from 1: the lowest that is free.
        number: u32,
    },
    /// Ask it to finish what it has, and end.
    Ask(Id, Why),
    /// End it now.
    Kill(Id),
}

/// Why a process is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Another has taken its place.
    Replaced,
    /// There are more than wanted.
    TooMany,
    /// Everything ends.
    Over,
}

/// What the end of a process came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It had been asked.
    AsAsked,
    /// There will be another, at the earliest after so long.
    Again(Duration),
    /// Its group failed to start too often: no more of it are started.
    GivenUp,
}

/// Everybody who runs or should.
#[derive(Debug)]
pub struct Roster {
    rules: Rules,
    groups: Vec<Group>,
    next: u64,
    generation: u64,
    is_over: bool,
}

impl Roster {
    /// Nobody yet.
    pub fn new(rules: Rules, shapes: impl IntoIterator<Item = Shape>) -> Self {
        let groups = shapes.into_iter().map(Group::new).collect();
        Self { rules, groups, next: 1, generation: 0, is_over: false }
    }

    /// Other rules and shapes from now on, each in the place that it had; new ones come behind. Whoever
    /// has none any more finishes what they have and goes.
    pub fn reshape(&mut self, rules: Rules, shapes: impl IntoIterator<Item = Shape>) {
        self.rules = rules;
        let mut shapes = shapes.into_iter();
        for group in &mut self.groups {
            match shapes.next() {
                Some(shape) => group.reshape(shape),
                None => group.reshape(group.shape.gone()),
            }
        }
        self.groups.extend(shapes.map(Group::new));
    }

    /// What is to be done now.
    pub fn step(&mut self, now: Duration) -> Vec<Deed> {
        let mut deeds = Vec::new();
        for (place, group) in self.groups.iter_mut().enumerate() {
            group.grow_up(now, &self.rules);
            deeds.extend(group.overdue(now));
            if self.is_over {
                let all = group.processes.iter_mut().filter(|process| !process.is_ending());
                deeds.extend(all.map(|process| process.ask(Why::Over, now, &self.rules)));
                continue;
            }
            for _ in 0..group.missing(now, self.generation) {
                let number = group.free_number();
                let id = Id(self.next);
                self.next += 1;
                group.processes.push(Process::new(id, number, now, self.generation, group.round));
                deeds.push(Deed::Start { id, group: place, number });
            }
            deeds.extend(group.spare(now, self.generation, &self.rules));
        }
        deeds
    }

    /// A process has ended, or could not be started.
    pub fn ended(&mut self, id: Id, now: Duration) -> Ended {
        for group in &mut self.groups {
            if let Some(at) = group.processes.iter().position(|process| process.id == id) {
                let process = group.processes.remove(at);
                return group.lost(&process, now, &self.rules);
            }
        }
        Ended::AsAsked
    }

    /// Everybody is to be replaced, one after the other. What was given up is tried again.
    pub fn refresh(&mut self, now: Duration) {
        self.generation += 1;
        self.groups.iter_mut().for_each(|group| group.forgive(now));
    }

    /// This process is to be replaced.
    pub fn replace(&mut self, id: Id) {
        let mut all = self.groups.iter_mut().flat_map(|group| &mut group.processes);
        if let Some(process) = all.find(|process| process.id == id) {
            process.stale = true;
        }
    }

    /// One more of each sort, as far as there may be.
    pub fn more(&mut self) {
        self.groups.iter_mut().for_each(Group::more);
    }

    /// The same of one sort. Whether there will be.
    pub fn more_of(&mut self, group: usize) -> bool {
        self.change(group, Group::more)
    }

    /// One fewer of one sort. Whether there will be.
    pub fn fewer_of(&mut self, group: usize) -> bool {
        self.change(group, Group::fewer)
    }

    fn change(&mut self, group: usize, change: fn(&mut Group)) -> bool {
        let Some(group) = self.groups.get_mut(group) else { return false };
        let before = group.wanted;
        change(group);
        group.wanted != before
    }

    /// How many of one sort are wanted.
    pub fn wanted(&self, group: usize) -> u32 {
        self.groups.get(group).map_or(0, |group| group.wanted)
    }

    /// One fewer of each sort, as far as there may be.
    pub fn fewer(&mut self) {
        self.groups.iter_mut().for_each(Group::fewer);
    }

    /// Everybody is to finish what they have and end.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// Those who were asked to end are killed this long from now, if that is sooner.
    pub fn hurry(&mut self, now: Duration, grace: Duration) {
        for process in self.groups.iter_mut().flat_map(|group| &mut group.processes) {
            if let State::Ending { until, .. } = &mut process.state {
                *until = (*until).min(now + grace);
            }
        }
    }

    /// When there may be something to do though nothing happened.
    pub fn due(&self) -> Option<Duration> {
        let starts = |group: &Group| {
            Some(group.not_before).filter(|_| !self.is_over && group.is_short(self.generation))
        };
        let due = self.groups.iter();
        due.flat_map(|group| group.ripe(&self.rules).chain(starts(group))).min()
    }

    /// Whether all is as it should be, or cannot be helped.
    pub fn is_settled(&self) -> bool {
        self.groups.iter().all(|group| group.is_settled(self.generation))
    }

    /// Whether nobody is left.
    pub fn is_empty(&self) -> bool {
        self.groups.iter().all(|group| group.processes.is_empty())
    }

    /// Whether there is nobody, and nobody will come.
    pub fn is_hopeless(&self) -> bool {
        // A section that wants nobody now may want somebody later.
        self.is_empty() && self.groups.iter().all(|group| group.given_up || group.shape.max == 0)
    }

    /// How many run, and how many should.
    pub fn count(&self) -> (usize, u32) {
        let up = |process: &&Process| matches!(process.state, State::Up);
        let all = self.groups.iter().flat_map(|group| &group.processes);
        (all.filter(up).count(), self.groups.iter().map(|group| group.wanted).sum())
    }
}
