//! Renders a frame as lines of text, for output that is no terminal. Pure.

use longshore::Timestamp;
use longshore::duration::{self, format_ago};

use super::list::ListKind;
use super::stats::{BatchStats, PoolSummary, QueueStats, TopStats};
use crate::terminal::bar;

/// The minimum width of a bar; in wide frames it is doubled.
const BAR_WIDTH: usize = 20;
/// The width of names in narrow frames.
const NAME_WIDTH: usize = 16;

/// The content of a frame.
pub(super) struct TextFrame<'a> {
    pub(super) stats: &'a TopStats,
    /// Columns.
    pub(super) width: usize,
    pub(super) now: Timestamp,
}

impl TextFrame<'_> {
    /// The lines, none wider than the frame.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = self.head();
        for list in ListKind::ALL {
            lines.push(String::new());
            lines.extend(self.list(list));
        }
        let fits = |line: String| line.chars().filter(|c| !c.is_control()).take(self.width).collect();
        lines.into_iter().map(fits).collect()
    }

    fn head(&self) -> Vec<String> {
        let counts = &self.stats.counts;
        let slots: u64 = self.stats.workers.iter().map(|worker| u64::from(worker.own_slots())).sum();
        let later = counts.scheduled + counts.blocked;
        vec![
            format!(
                "ready {}   running {}   later {later}   done {}   failed {}   {:.1}/s",
                counts.ready, counts.leased, counts.done, counts.failed, self.stats.per_second
            ),
            format!(
                "workers {}   slots {} {} of {slots}",
                self.stats.workers.len(),
                bar(counts.leased, slots, BAR_WIDTH),
                counts.leased.min(slots)
            ),
            String::new(),
        ]
    }

    /// A list under its heading.
    fn list(&self, list: ListKind) -> Vec<String> {
        let title = list.name().to_uppercase();
        let (heading, rows) = match list {
            ListKind::Queues => self.queues(&title),
            ListKind::Batches => self.batches(&title),
            ListKind::Workers => self.workers(&title),
            ListKind::Pools => self.pools(&title),
        };
        // The list that the live view selects first.
        let is_chosen = list == ListKind::default();
        let mark = |on: bool| if on { '>' } else { ' ' };
        let mut lines = vec![format!("{} {heading}", mark(is_chosen))];
        if rows.is_empty() {
            lines.push(format!("  no {}", list.name()));
        }
        let rows = rows.into_iter().enumerate();
        lines.extend(rows.map(|(i, line)| format!("{} {line}", mark(is_chosen && i == 0))));
        lines
    }

    /// The widths of names and bars.
    fn widths(&self) -> (usize, usize) {
        match self.width {
            ..100 => (NAME_WIDTH, BAR_WIDTH),
            100..140 => (NAME_WIDTH + 8, BAR_WIDTH),
            _ => (2 * NAME_WIDTH, 2 * BAR_WIDTH),
        }
    }

    fn queues(&self, title: &str) -> (String, Vec<String>) {
        let (name, _) = self.widths();
        let heading = format!(
            "{:<name$} {:>7} {:>7} {:>7} {:>7} {:<8} {:>8}  {}",
            title, "ready", "running", "later", "failed", "is", "rate", "oldest"
        );
        let row = |queue: &QueueStats| {
            let counts = &queue.counts;
            let is = if queue.paused { "paused" } else { queue.trend.as_str() };
            let oldest = queue.oldest_ready.map_or(String::new(), |at| format_ago(at, self.now));
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
        (heading, self.stats.queues.iter().map(row).collect())
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
        let row = |batch: &BatchStats| {
            let (ended, total) = (batch.counts.finished(), batch.counts.total());
            let percent = (ended * 100).checked_div(total).unwrap_or(0);
            let left = batch.left.map_or(String::new(), duration::format);
            format!(
                "{:<name$} {:<9} {} {percent:>4}% {:>7} {:>6.1}/s  {left}",
                cut(batch.id.as_str(), name),
                batch.status.to_string(),
                bar(ended, total, width),
                batch.counts.failed,
                batch.per_second
            )
        };
        (heading, self.stats.batches.iter().map(row).collect())
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
        let row = |worker: &longshore::worker_session::Session| {
            let id = worker.id.to_string();
            let used = format!("{}/{}", worker.held, worker.slots);
            format!(
                "{:<name$} {:<8} {} {used:>8} {:<8} {}",
                cut(&worker.label, name),
                id.get(..8).unwrap_or(&id),
                bar(worker.held, worker.slots.into(), width),
                cut(&worker.version, 8),
                format_ago(worker.beat_at, self.now)
            )
        };
        (heading, self.stats.workers.iter().map(row).collect())
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
        let row = |pool: &PoolSummary| {
            let used = format!("{}/{}", pool.in_use, pool.max);
            format!(
                "{:<name$} {} {used:>11} {:>8} {:>8}",
                cut(pool.pool.as_str(), name),
                bar(pool.in_use.into(), pool.max.into(), width),
                pool.holders,
                pool.waiting
            )
        };
        (heading, self.stats.pools.iter().map(row).collect())
    }
}

/// Truncates a name to a width.
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
    use crate::commands::top::stats::StatsWindow;
    use crate::commands::top::stats::tests::{lane, snapshot};

    fn stats(queues: usize) -> TopStats {
        let lanes = |done| (0..queues).map(|i| lane(&format!("queue-{i}"), "a", 7, done)).collect();
        let mut window = StatsWindow::default();
        window.add(snapshot(lanes(0)), Duration::ZERO);
        window.add(snapshot(lanes(20)), Duration::from_secs(10))
    }

    fn drawn(stats: &TopStats, width: usize) -> Vec<String> {
        let now = Timestamp::from_micros(60_000_000);
        TextFrame { stats, width, now }.lines()
    }

    #[test]
    fn a_frame_fits_and_shows_every_list() {
        for width in [200, 80, 40, 20, 1] {
            let lines = drawn(&stats(60), width);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:?}");
        }
        let text = drawn(&stats(60), 80).join("\n");
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
