//! One frame, as lines of text for where nobody watches. Pure.

use longshore::Timestamp;

use super::figures::{Figures, Pool, Progress, Queue};
use super::list::List;
use crate::screen::bar;
use crate::span::{ago, brief};

/// How wide a bar is at least; where there is room it is twice as wide.
const BAR: usize = 20;
/// Names are shown so far in narrow frames.
const NAME: usize = 16;

/// What a frame shows.
pub(super) struct Frame<'a> {
    pub(super) figures: &'a Figures,
    /// Columns.
    pub(super) width: usize,
    pub(super) now: Timestamp,
}

impl Frame<'_> {
    /// The lines, none wider than the frame.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = self.head();
        for list in List::ALL {
            lines.push(String::new());
            lines.extend(self.list(list));
        }
        let fits =
            |line: String| line.chars().filter(|c| !c.is_control()).take(self.width).collect();
        lines.into_iter().map(fits).collect()
    }

    fn head(&self) -> Vec<String> {
        let counts = &self.figures.counts;
        let slots: u64 =
            self.figures.workers.iter().map(|worker| u64::from(worker.own_slots())).sum();
        let later = counts.scheduled + counts.blocked;
        vec![
            format!(
                "ready {}   running {}   later {later}   done {}   failed {}   {:.1}/s",
                counts.ready, counts.leased, counts.done, counts.failed, self.figures.per_second
            ),
            format!(
                "workers {}   slots {} {} of {slots}",
                self.figures.workers.len(),
                bar(counts.leased, slots, BAR),
                counts.leased.min(slots)
            ),
            String::new(),
        ]
    }

    /// A list under its heading.
    fn list(&self, list: List) -> Vec<String> {
        let title = list.name().to_uppercase();
        let (heading, rows) = match list {
            List::Queues => self.queues(&title),
            List::Batches => self.batches(&title),
            List::Workers => self.workers(&title),
            List::Pools => self.pools(&title),
        };
        // What the live view begins with.
        let is_chosen = list == List::default();
        let mark = |on: bool| if on { '>' } else { ' ' };
        let mut lines = vec![format!("{} {heading}", mark(is_chosen))];
        if rows.is_empty() {
            lines.push(format!("  no {}", list.name()));
        }
        let rows = rows.into_iter().enumerate();
        lines.extend(rows.map(|(i, line)| format!("{} {line}", mark(is_chosen && i == 0))));
        lines
    }

    /// How wide names and bars are.
    fn widths(&self) -> (usize, usize) {
        match self.width {
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

    fn drawn(figures: &Figures, width: usize) -> Vec<String> {
        let now = Timestamp::from_micros(60_000_000);
        Frame { figures, width, now }.lines()
    }

    #[test]
    fn a_frame_fits_and_shows_every_list() {
        for width in [200, 80, 40, 20, 1] {
            let lines = drawn(&figures(60), width);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:?}");
        }
        let text = drawn(&figures(60), 80).join("\n");
        for words in [
            "> QUEUES",
            "> queue-0",
            "  queue-59",
            "BATCHES",
            "WORKERS",
            "POOLS",
            "no batches",
            "2.0/s",
            "steady",
            "oldest",
        ] {
            assert!(text.contains(words), "{words} in\n{text}");
        }
    }
}
