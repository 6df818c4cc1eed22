//! One frame, as lines of text. Pure.

use longshore::Timestamp;

use super::figures::{Figures, Pool, Progress, Queue};
use crate::screen::bar;
use crate::span::{ago, brief};

/// How wide a bar is at least; where there is room it is twice as wide.
const BAR: usize = 20;
/// Names are shown so far in narrow frames.
const NAME: usize = 16;

/// What a list is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum List {
    #[default]
    Queues,
    Batches,
    Workers,
    Pools,
}

impl List {
    const ALL: [Self; 4] = [Self::Queues, Self::Batches, Self::Workers, Self::Pools];

    fn name(self) -> &'static str {
        match self {
            Self::Queues => "queues",
            Self::Batches => "batches",
            Self::Workers => "workers",
            Self::Pools => "pools",
        }
    }

    fn length(self, figures: &Figures) -> usize {
        match self {
            Self::Queues => figures.queues.len(),
            Self::Batches => figures.batches.len(),
            Self::Workers => figures.workers.len(),
            Self::Pools => figures.pools.len(),
        }
    }
}

/// What the reader looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Choice {
    pub(super) list: List,
    pub(super) row: usize,
}

impl Choice {
    /// The next list.
    pub(super) fn next(&mut self) {
        let at = List::ALL.iter().position(|list| *list == self.list).unwrap_or(0);
        *self = Self { list: List::ALL[(at + 1) % List::ALL.len()], row: 0 };
    }

    /// The row above.
    pub(super) fn up(&mut self) {
        self.row = self.row.saturating_sub(1);
    }

    /// The row below.
    pub(super) fn down(&mut self) {
        self.row += 1;
    }

    /// What is not there any more cannot be chosen.
    pub(super) fn keep_within(&mut self, figures: &Figures) {
        self.row = self.row.min(self.list.length(figures).saturating_sub(1));
    }
}

/// What a frame shows.
pub(super) struct Frame<'a> {
    pub(super) figures: &'a Figures,
    pub(super) choice: Choice,
    /// What the last key did.
    pub(super) word: &'a str,
    /// Columns and rows.
    pub(super) size: (usize, usize),
    pub(super) now: Timestamp,
}

impl Frame<'_> {
    /// What keys do.
    pub(super) fn foot(&self) -> &'static str {
        "q quits  tab next list  up/down choose  p pause or resume"
    }

    /// The lines, none wider than the frame, and no more than fit above its last row.
    pub(super) fn lines(&self) -> Vec<String> {
        let (width, height) = self.size;
        let mut lines = self.head();
        for (list, room) in List::ALL.into_iter().zip(self.rooms(height.saturating_sub(5))) {
            lines.push(String::new());
            lines.extend(self.list(list, room));
        }
        if !self.word.is_empty() {
            // On the line that parts the figures from the lists.
            lines[2] = format!("> {}", self.word);
        }
        let fits = |line: String| line.chars().filter(|c| !c.is_control()).take(width).collect();
        lines.into_iter().map(fits).take(height.saturating_sub(1)).collect()
    }

    fn head(&self) -> Vec<String> {
        let counts = &self.figures.counts;
        let slots: u32 = self.figures.workers.iter().map(|worker| worker.slots).sum();
        let later = counts.scheduled + counts.blocked;
        vec![
            format!(
                "ready {}   running {}   later {later}   done {}   failed {}   {:.1}/s",
                counts.ready, counts.leased, counts.done, counts.failed, self.figures.per_second
            ),
            format!(
                "workers {}   slots {} {} of {slots}",
                self.figures.workers.len(),
                bar(counts.leased, slots.into(), BAR),
                counts.leased.min(slots.into())
            ),
            String::new(),
        ]
    }

    /// How many rows each list may have: all if they fit; else the chosen one most of the room.
    fn rooms(&self, height: usize) -> [usize; 4] {
        let wanted = List::ALL.map(|list| list.length(self.figures).max(1));
        // A heading and an empty line each.
        let room = height.saturating_sub(2 * List::ALL.len());
        if wanted.iter().sum::<usize>() <= room {
            return wanted;
        }
        let chosen = List::ALL.iter().position(|list| *list == self.choice.list).unwrap_or(0);
        let others = (room / 6).max(1);
        let mut rooms = wanted.map(|wanted| wanted.min(others));
        rooms[chosen] = 0;
        rooms[chosen] = room.saturating_sub(rooms.iter().sum()).min(wanted[chosen]).max(1);
        rooms
    }

    /// A list under its heading; the rows around the chosen one if not all fit.
    fn list(&self, list: List, room: usize) -> Vec<String> {
        let title = match list.length(self.figures).saturating_sub(room) {
            0 => list.name().to_uppercase(),
            hidden => format!("{} +{hidden}", list.name().to_uppercase()),
        };
        let (heading, rows) = match list {
            List::Queues => self.queues(&title),
            List::Batches => self.batches(&title),
            List::Workers => self.workers(&title),
            List::Pools => self.pools(&title),
        };
        let is_chosen = list == self.choice.list;
        let row = if is_chosen { self.choice.row } else { 0 };
        let from = row.saturating_sub(room.saturating_sub(1));
        let mark = |on: bool| if on { '>' } else { ' ' };
        let mut lines = vec![format!("{} {heading}", mark(is_chosen))];
        if rows.is_empty() {
            lines.push(format!("  no {}", list.name()));
        }
        let shown = rows.into_iter().enumerate().skip(from).take(room);
        lines.extend(shown.map(|(i, line)| format!("{} {line}", mark(is_chosen && i == row))));
        lines
    }

    /// How wide names and bars are.
    fn widths(&self) -> (usize, usize) {
        match self.size.0 {
            ..100 => (NAME, BAR),
            100..140 => (NAME + 8, BAR),
            _ => (2 * NAME, 2 * BAR),
        }
    }

    fn queues(&self, title: &str) -> (String, Vec<String>) {
        let (name, _) = self.widths();
        let heading = format!(
            "{:<name$} {:>7} {:>7} {:>7} {:>7} {:<8} {:>8}  {}",
            title, "ready", "running", "later", "failed", "is", "rate", "oldest"
        );
        let row = |queue: &Queue| {
            let counts = &queue.counts;
            let is = if queue.paused { "paused" } else { queue.trend.as_str() };
            let oldest = queue.oldest_ready.map_or(String::new(), |at| ago(at, self.now));
            format!(
                "{:<name$} {:>7} {:>7} {:>7} {:>7} {is:<8} {:>6.1}/s  {oldest}",
                cut(&queue.queue, name),
                counts.ready,
                counts.leased,
                counts.scheduled + counts.blocked,
                counts.failed,
                queue.per_second
            )
        };
        (heading, self.figures.queues.iter().map(row).collect())
    }

    fn batches(&self, title: &str) -> (String, Vec<String>) {
        let (name, width) = self.widths();
        let heading = format!(
            "{:<name$} {:<9} {:<progress$} {:>5} {:>7} {:>8}  {}",
            title,
            "status",
            "progress",
            "",
            "failed",
            "rate",
            "left",
            progress = width + 2
        );
        let row = |batch: &Progress| {
            let (ended, total) = (batch.counts.finished(), batch.counts.total());
            let percent = (ended * 100).checked_div(total).unwrap_or(0);
            let left = batch.left.map_or(String::new(), brief);
            format!(
                "{:<name$} {:<9} {} {percent:>4}% {:>7} {:>6.1}/s  {left}",
                cut(batch.id.as_str(), name),
                batch.status.to_string(),
                bar(ended, total, width),
                batch.counts.failed,
                batch.per_second
            )
        };
        (heading, self.figures.batches.iter().map(row).collect())
    }

    fn workers(&self, title: &str) -> (String, Vec<String>) {
        let (name, width) = self.widths();
        let heading = format!(
            "{:<name$} {:<8} {:<slots$} {:>8} {:<8} {}",
            title,
            "id",
            "slots",
            "",
            "version",
            "last beat",
            slots = width + 2
        );
        let row = |worker: &longshore::session::Session| {
            let id = worker.id.to_string();
            let used = format!("{}/{}", worker.held, worker.slots);
            format!(
                "{:<name$} {:<8} {} {used:>8} {:<8} {}",
                cut(&worker.label, name),
                id.get(..8).unwrap_or(&id),
                bar(worker.held, worker.slots.into(), width),
                cut(&worker.version, 8),
                ago(worker.beat_at, self.now)
            )
        };
        (heading, self.figures.workers.iter().map(row).collect())
    }

    fn pools(&self, title: &str) -> (String, Vec<String>) {
        let (name, width) = self.widths();
        let heading = format!(
            "{:<name$} {:<used$} {:>11} {:>8} {:>8}",
            title,
            "in use",
            "",
            "holders",
            "waiting",
            used = width + 2
        );
        let row = |pool: &Pool| {
            let used = format!("{}/{}", pool.in_use, pool.max);
            format!(
                "{:<name$} {} {used:>11} {:>8} {:>8}",
                cut(pool.pool.as_str(), name),
                bar(pool.in_use.into(), pool.max.into(), width),
                pool.holders,
                pool.waiting
            )
        };
        (heading, self.figures.pools.iter().map(row).collect())
    }
}

/// So much of a name that it fits.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::commands::top::figures::Past;
    use crate::commands::top::figures::tests::{lane, seen};

    fn figures(queues: usize) -> Figures {
        let lanes = |done| (0..queues).map(|i| lane(&format!("queue-{i}"), "a", 7, done)).collect();
        let mut past = Past::default();
        past.add(seen(lanes(0)), Duration::ZERO);
        past.add(seen(lanes(20)), Duration::from_secs(10))
    }

    fn drawn(figures: &Figures, choice: Choice, size: (usize, usize)) -> Vec<String> {
        let now = Timestamp::from_micros(60_000_000);
        Frame { figures, choice, word: "queue a is paused", size, now }.lines()
    }

    #[test]
    fn a_frame_fits_and_shows_every_list() {
        for size in [(80, 24), (200, 50), (40, 10), (20, 5), (1, 1)] {
            let lines = drawn(&figures(60), Choice::default(), size);
            assert!(lines.len() < size.1.max(1) || size.1 == 1, "{size:?}: {}", lines.len());
            assert!(lines.iter().all(|line| line.chars().count() <= size.0), "{lines:?}");
        }
        let text = drawn(&figures(60), Choice::default(), (80, 24)).join("\n");
        for words in
            ["QUEUES +5", "BATCHES", "WORKERS", "POOLS", "no batches", "2.0/s", "steady", "oldest"]
        {
            assert!(text.contains(words), "{words} in\n{text}");
        }
        assert!(text.contains("> queue a is paused"), "{text}");
    }

    #[test]
    fn the_chosen_row_is_always_in_sight() {
        let figures = figures(60);
        for row in [0, 1, 30, 59] {
            let choice = Choice { list: List::Queues, row };
            let lines = drawn(&figures, choice, (80, 24));
            let marked: Vec<_> = lines.iter().filter(|line| line.starts_with("> queue-")).collect();
            assert_eq!(marked.len(), 1, "{lines:?}");
        }
    }

    #[test]
    fn keys_move_within_what_is_there() {
        let figures = figures(2);
        let mut choice = Choice::default();
        for _ in 0..9 {
            choice.down();
            choice.keep_within(&figures);
        }
        assert_eq!(choice.row, 1);
        choice.up();
        choice.up();
        assert_eq!(choice.row, 0);
        for list in [List::Batches, List::Workers, List::Pools, List::Queues] {
            choice.next();
            choice.keep_within(&figures);
            assert_eq!(choice, Choice { list, row: 0 });
        }
    }
}
