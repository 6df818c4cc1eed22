//! Decides which processes should run, and what to do about it. Pure: processes are ids here, and
//! time is a parameter.
//!
//! [`Reconciler::ended`] and the like report events; [`Reconciler::step`] returns the actions that
//! follow. It may be called at any time, and repeats no action.

use std::time::Duration;

use super::section::{ProcessState, SectionState, SupervisedProcess};

/// When processes are started, restarted and given up. Times are since the supervisor's start.
#[derive(Debug, Clone, PartialEq)]
pub struct RestartRules {
    /// A process that ends sooner has failed to start.
    pub min_uptime: Duration,
    /// After this many failures to start …
    pub start_failures: u32,
    /// … within this window, the section is given up.
    pub start_window: Duration,
    /// The delay of the first restart; it doubles with each.
    pub restart_base: Duration,
    /// The maximum delay.
    pub restart_max: Duration,
    /// A process that was told to stop is killed after this long, unless its section says otherwise.
    pub drain_timeout: Duration,
}

/// The size of a section.
#[derive(Debug, Clone, PartialEq)]
pub struct SectionSpec {
    /// The section's name.
    pub name: String,
    /// Number of processes at the start.
    pub begin: u32,
    /// Minimum number, …
    pub min: u32,
    /// … and maximum.
    pub max: u32,
    /// An older process is replaced.
    pub max_age: Option<Duration>,
    /// A process that was told to stop is killed after this long.
    pub drain_timeout: Option<Duration>,
}

impl SectionSpec {
    /// The section with a size of zero.
    pub fn emptied(&self) -> Self {
        Self { begin: 0, min: 0, max: 0, ..self.clone() }
    }
}

/// One run of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u64);

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SupervisorAction {
    /// Start a process of this section.
    Start {
        /// Its id.
        id: ProcessId,
        /// The section's index.
        section: usize,
        /// Its number in the section, from 1: the lowest that is free.
        number: u32,
    },
    /// Tell it to drain and stop.
    Terminate(ProcessId, StopReason),
    /// Kill it.
    Kill(ProcessId),
}

/// Why a process is told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Its replacement is up.
    Replaced,
    /// There are more than wanted.
    TooMany,
    /// The supervisor stops.
    ShuttingDown,
}

/// What follows from the end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitDecision {
    /// It was told to stop.
    Expected,
    /// It is restarted after this delay at the earliest.
    Restart(Duration),
    /// Its section failed to start too often: it is given up.
    GivenUp,
}

/// The actual and the desired processes of all sections.
#[derive(Debug)]
pub struct Reconciler {
    rules: RestartRules,
    sections: Vec<SectionState>,
    next: u64,
    generation: u64,
    is_over: bool,
}

impl Reconciler {
    /// Without processes.
    pub fn new(rules: RestartRules, specs: impl IntoIterator<Item = SectionSpec>) -> Self {
        let sections = specs.into_iter().map(SectionState::new).collect();
        Self { rules, sections, next: 1, generation: 0, is_over: false }
    }

    /// Sets other rules and sizes. Sections keep their positions; new ones are appended. Processes
    /// of removed sections are drained.
    pub fn update_sections(&mut self, rules: RestartRules, specs: impl IntoIterator<Item = SectionSpec>) {
        self.rules = rules;
        let mut specs = specs.into_iter();
        for section in &mut self.sections {
            match specs.next() {
                Some(spec) => section.set_spec(spec),
                None => section.set_spec(section.spec.emptied()),
            }
        }
        self.sections.extend(specs.map(SectionState::new));
    }

    /// The actions to take now.
    pub fn step(&mut self, now: Duration) -> Vec<SupervisorAction> {
        let mut actions = Vec::new();
        for (index, section) in self.sections.iter_mut().enumerate() {
            section.update_ages(now, &self.rules);
            actions.extend(section.overdue(now));
            if self.is_over {
                let limit = section.drain_limit(&self.rules);
                let all = section.processes.iter_mut().filter(|process| !process.is_ending());
                actions.extend(all.map(|process| process.stop(StopReason::ShuttingDown, now, limit)));
                continue;
            }
            for _ in 0..section.to_start(now, self.generation) {
                let number = section.free_number();
                let id = ProcessId(self.next);
                self.next += 1;
                let process = SupervisedProcess::new(id, number, now, self.generation, section.round);
                section.processes.push(process);
                actions.push(SupervisorAction::Start { id, section: index, number });
            }
            actions.extend(section.stop_surplus(now, self.generation, &self.rules));
        }
        actions
    }

    /// A process has ended, or could not be started.
    pub fn ended(&mut self, id: ProcessId, now: Duration) -> ExitDecision {
        for section in &mut self.sections {
            if let Some(at) = section.processes.iter().position(|process| process.id == id) {
                let process = section.processes.remove(at);
                return section.handle_end(&process, now, &self.rules);
            }
        }
        ExitDecision::Expected
    }

    /// Replaces all processes, one by one. Sections that were given up are tried again.
    pub fn refresh(&mut self, now: Duration) {
        self.generation += 1;
        self.sections.iter_mut().for_each(|section| section.reset_failures(now));
    }

    /// Replaces this process.
    pub fn replace(&mut self, id: ProcessId) {
        let mut all = self.sections.iter_mut().flat_map(|section| &mut section.processes);
        if let Some(process) = all.find(|process| process.id == id) {
            process.stale = true;
        }
    }

    /// Adds a process to each section, up to its maximum.
    pub fn scale_up_all(&mut self) {
        self.sections.iter_mut().for_each(SectionState::scale_up);
    }

    /// Adds a process to one section. False if it has its maximum.
    pub fn scale_up(&mut self, section: usize) -> bool {
        self.change(section, SectionState::scale_up)
    }

    /// Removes a process from one section. False if it has its minimum.
    pub fn scale_down(&mut self, section: usize) -> bool {
        self.change(section, SectionState::scale_down)
    }

    fn change(&mut self, section: usize, change: fn(&mut SectionState)) -> bool {
        let Some(section) = self.sections.get_mut(section) else { return false };
        let before = section.wanted;
        change(section);
        section.wanted != before
    }

    /// The desired number of processes of a section.
    pub fn wanted(&self, section: usize) -> u32 {
        self.sections.get(section).map_or(0, |section| section.wanted)
    }

    /// Removes a process from each section, down to its minimum.
    pub fn scale_down_all(&mut self) {
        self.sections.iter_mut().for_each(SectionState::scale_down);
    }

    /// Drains and stops all processes.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// Kills processes that were told to stop this long from now, if that is sooner.
    pub fn shorten_drain(&mut self, now: Duration, grace: Duration) {
        for process in self.sections.iter_mut().flat_map(|section| &mut section.processes) {
            if let ProcessState::Ending { until, .. } = &mut process.state {
                *until = (*until).min(now + grace);
            }
        }
    }

    /// The next time at which an action may be due without an event.
    pub fn due(&self) -> Option<Duration> {
        let starts = |section: &SectionState| {
            Some(section.not_before).filter(|_| !self.is_over && section.needs_start(self.generation))
        };
        let due = self.sections.iter();
        due.flat_map(|section| section.next_changes(&self.rules).chain(starts(section))).min()
    }

    /// Whether all processes are up and current, or their sections were given up.
    pub fn is_settled(&self) -> bool {
        self.sections.iter().all(|section| section.is_settled(self.generation))
    }

    /// Whether no process is left.
    pub fn is_empty(&self) -> bool {
        self.sections.iter().all(|section| section.processes.is_empty())
    }

    /// Whether no process is left, and none will be started.
    pub fn cannot_run(&self) -> bool {
        // A removed section has a maximum of zero.
        self.is_empty() && self.sections.iter().all(|section| section.given_up || section.spec.max == 0)
    }

    /// How many processes are up, and how many are wanted.
    pub fn count(&self) -> (usize, u32) {
        let up = |process: &&SupervisedProcess| matches!(process.state, ProcessState::Up);
        let all = self.sections.iter().flat_map(|section| &section.processes);
        (all.filter(up).count(), self.sections.iter().map(|section| section.wanted).sum())
    }
}
