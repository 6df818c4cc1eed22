//! Draws one frame of the live view with ratatui. Pure, apart from the terminal.
//!
//! Only the 16 colours of every terminal are used, which themes choose, never black or white: both
//! dark and light themes stay readable. The selection is reversed, so that it is visible without
//! colours too.

use longshore::duration::{self, format_ago};
use longshore::{BatchStatus, Timestamp};
use longshore_web::Trend;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Flex, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table, TableState};

use super::list::ListKind;
use super::selection::RowSelection;
use super::stats::TopStats;
use crate::terminal::filled_width;

/// The minimum width of a gauge; in wide frames it is doubled.
const GAUGE_WIDTH: usize = 16;
/// The maximum width of names.
const NAME_WIDTH: u16 = 40;
/// The rows of the header.
const HEADER_ROWS: u16 = 3;
/// The key hints.
const KEY_HINTS: &str = "q quits  tab next list  up/down choose  p pause or resume  ? help";
const HELP_TEXT: &str = "q, Ctrl-C       leave
tab, right      next list
shift-tab, left previous list
up, down, k, j  choose a row
p               pause or resume the selected
                queue or batch
?               show or hide this help";

/// The content of a frame.
pub(super) struct TuiView<'a> {
    pub(super) stats: &'a TopStats,
    pub(super) selection: RowSelection,
    /// Finished units per second over time, newest last.
    pub(super) rates: &'a [u64],
    /// The message of the last key.
    pub(super) message: &'a str,
    pub(super) help: bool,
    pub(super) now: Timestamp,
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn faint() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

impl TuiView<'_> {
    /// Draws the frame.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let rows = [
            Constraint::Length(HEADER_ROWS),
            Constraint::Length(1),
            Constraint::Min(0),
            Constraint::Length(1),
        ];
        let [head, message, lists, foot] = Layout::vertical(rows).areas(frame.area());
        self.head(frame, head);
        frame.render_widget(Line::styled(self.message, bold()), message);
        self.lists(frame, lists);
        frame.render_widget(Line::styled(KEY_HINTS, faint()), foot);
        if self.help {
            help(frame);
        }
    }

    fn head(&self, frame: &mut Frame<'_>, area: Rect) {
        let [left, right] = Layout::horizontal([Constraint::Fill(2), Constraint::Fill(1)]).areas(area);
        let counts = &self.stats.counts;
        let slots: u64 = self.stats.workers.iter().map(|worker| u64::from(worker.own_slots())).sum();
        let later = counts.scheduled + counts.blocked;
        let failed = if counts.failed > 0 { Color::Red.into() } else { Style::new() };
        let figure = |name: &'static str, count: u64, style: Style| {
            [Span::styled(name, faint()), Span::styled(format!(" {count}  "), style.patch(bold()))]
        };
        let plain = Style::new();
        let lines = vec![
            Line::from_iter(
                [figure("ready", counts.ready, plain), figure("running", counts.leased, plain)]
                    .into_iter()
                    .chain([figure("later", later, plain)])
                    .flatten(),
            ),
            Line::from_iter(
                [figure("done", counts.done, plain), figure("failed", counts.failed, failed)]
                    .into_iter()
                    .chain([figure("workers", self.stats.workers.len() as u64, plain)])
                    .flatten(),
            ),
            Line::from_iter(
                [Span::styled("slots ", faint())]
                    .into_iter()
                    .chain(gauge(counts.leased, slots, GAUGE_WIDTH, Color::Cyan))
                    .chain([Span::raw(format!(" {} of {slots}", counts.leased.min(slots)))]),
            ),
        ];
        frame.render_widget(Paragraph::new(lines), left);
        let title = format!("{:.1}/s", self.stats.per_second);
        let width = usize::from(right.width);
        let last = &self.rates[self.rates.len().saturating_sub(width)..];
        let block = Block::new().title(Line::styled(title, bold())).title_alignment(Alignment::Right);
        let line = Sparkline::default().data(last.iter().copied()).style(Color::Cyan).block(block);
        frame.render_widget(line, right);
    }

    /// Draws all lists: the selected one gets most of the height if not all fit.
    fn lists(&self, frame: &mut Frame<'_>, area: Rect) {
        let row_counts = self.selection.row_counts(self.stats, area.height.into());
        let row_counts = row_counts.map(|rows| u16::try_from(rows).unwrap_or(u16::MAX));
        let heights = row_counts.map(|rows| Constraint::Length(rows.saturating_add(2)));
        let areas: [Rect; 4] = Layout::vertical(heights).areas(area);
        for ((list, area), room) in ListKind::ALL.into_iter().zip(areas).zip(row_counts) {
            self.list(frame, list, area, room);
        }
    }

    fn list(&self, frame: &mut Frame<'_>, list: ListKind, area: Rect, room: u16) {
        let is_chosen = list == self.selection.list;
        let length = list.length(self.stats);
        let title = match length.saturating_sub(room.into()) {
            0 => list.name().to_uppercase(),
            hidden => format!("{} +{hidden}", list.name().to_uppercase()),
        };
        let width = if area.width < 120 { GAUGE_WIDTH } else { 2 * GAUGE_WIDTH };
        let (mut heading, rows, mut widths) = match list {
            ListKind::Queues => self.queues(),
            ListKind::Batches => self.batches(width),
            ListKind::Workers => self.workers(width),
            ListKind::Pools => self.pools(width),
        };
        heading.insert(0, Cell::from(title));
        widths.insert(0, Constraint::Length(name(area.width, &widths)));
        let style = if is_chosen { bold().fg(Color::Cyan) } else { bold() };
        let mut state = TableState::new().with_selected(is_chosen.then_some(self.selection.row));
        let table = Table::new(rows, widths)
            .header(Row::new(heading).style(style))
            .column_spacing(1)
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let area = Rect { height: area.height.saturating_sub(1), ..area };
        frame.render_stateful_widget(table, area, &mut state);
        if length == 0 {
            let below = Rect { y: area.y.saturating_add(1), height: 1, ..area };
            let empty = Line::styled(format!("no {}", list.name()), faint());
            frame.render_widget(empty, below.intersection(area));
        }
    }

    fn queues(&self) -> Columns<'_> {
        let heading = [right("ready"), right("running"), right("later"), right("failed")];
        let more = [Cell::from("is"), right("rate"), Cell::from("oldest")];
        let rows = self.stats.queues.iter().map(|queue| {
            let counts = &queue.counts;
            let (is, style) = match queue.trend {
                _ if queue.paused => ("paused", Color::Magenta.into()),
                Trend::Growing => ("growing", Color::Yellow.into()),
                Trend::Draining => ("draining", Color::Green.into()),
                trend => (trend.as_str(), Style::new()),
            };
            let oldest = queue.oldest_ready.map_or(String::new(), |at| format_ago(at, self.now));
            Row::new(vec![
                Cell::from(queue.queue.as_str()),
                right(counts.ready),
                right(counts.leased),
                right(counts.scheduled + counts.blocked),
                failed(counts.failed),
                Cell::from(Span::styled(is, style)),
                right(format!("{:.1}/s", queue.per_second)),
                Cell::from(oldest),
            ])
        });
        let widths = [7, 7, 7, 7, 8, 9, 12].map(Constraint::Length);
        (heading.into_iter().chain(more).collect(), rows.collect(), widths.to_vec())
    }

    fn batches(&self, width: usize) -> Columns<'_> {
        let heading = vec![
            Cell::from("status"),
            Cell::from("progress"),
            right(""),
            right("failed"),
            right("rate"),
            Cell::from("left"),
        ];
        let rows = self.stats.batches.iter().map(|batch| {
            let (ended, total) = (batch.counts.finished(), batch.counts.total());
            let percent = (ended * 100).checked_div(total).unwrap_or(0);
            let colour = match batch.status {
                BatchStatus::Failed | BatchStatus::Cancelled => Color::Red,
                BatchStatus::Paused => Color::Magenta,
                _ => Color::Green,
            };
            Row::new(vec![
                Cell::from(batch.id.as_str()),
                Cell::from(batch.status.to_string()),
                Cell::from(Line::from_iter(gauge(ended, total, width, colour))),
                right(format!("{percent}%")),
                failed(batch.counts.failed),
                right(format!("{:.1}/s", batch.per_second)),
                Cell::from(batch.left.map_or(String::new(), duration::format)),
            ])
        });
        let widths = [9, length(width), 4, 7, 9, 7].map(Constraint::Length);
        (heading, rows.collect(), widths.to_vec())
    }

    fn workers(&self, width: usize) -> Columns<'_> {
        let heading = vec![
            Cell::from("id"),
            Cell::from("slots"),
            right(""),
            Cell::from("version"),
            Cell::from("last beat"),
        ];
        let rows = self.stats.workers.iter().map(|worker| {
            let id = worker.id.to_string();
            let used = format!("{}/{}", worker.held, worker.slots);
            let slots = gauge(worker.held, worker.slots.into(), width, Color::Cyan);
            Row::new(vec![
                Cell::from(worker.label.as_str()),
                Cell::from(id.get(..8).unwrap_or(&id).to_owned()),
                Cell::from(Line::from_iter(slots)),
                right(used),
                Cell::from(worker.version.as_str()),
                Cell::from(format_ago(worker.beat_at, self.now)),
            ])
        });
        let widths = [8, length(width), 8, 8, 12].map(Constraint::Length);
        (heading, rows.collect(), widths.to_vec())
    }

    fn pools(&self, width: usize) -> Columns<'_> {
        let heading = vec![Cell::from("in use"), right(""), right("holders"), right("waiting")];
        let rows = self.stats.pools.iter().map(|pool| {
            let used = gauge(pool.in_use.into(), pool.max.into(), width, Color::Cyan);
            Row::new(vec![
                Cell::from(pool.pool.as_str()),
                Cell::from(Line::from_iter(used)),
                right(format!("{}/{}", pool.in_use, pool.max)),
                right(pool.holders),
                right(pool.waiting),
            ])
        });
        let widths = [length(width), 11, 8, 8].map(Constraint::Length);
        (heading, rows.collect(), widths.to_vec())
    }
}

/// The columns of a list beside the name: headings, rows with their names, and widths.
type Columns<'a> = (Vec<Cell<'a>>, Vec<Row<'a>>, Vec<Constraint>);

/// The width of names: what the other columns leave, up to a maximum that the eye can follow.
fn name(width: u16, others: &[Constraint]) -> u16 {
    let taken = others.iter().map(|other| match other {
        Constraint::Length(length) => length.saturating_add(1),
        _ => 0,
    });
    width.saturating_sub(taken.sum()).min(NAME_WIDTH)
}

fn length(width: usize) -> u16 {
    u16::try_from(width).unwrap_or(u16::MAX)
}

fn right(text: impl ToString) -> Cell<'static> {
    Cell::from(Line::from(text.to_string()).right_aligned())
}

/// A number that should be 0.
fn failed(count: u64) -> Cell<'static> {
    let style = if count > 0 { Color::Red.into() } else { Style::new() };
    right(count).style(style)
}

/// The filled and the empty part of a gauge.
fn gauge(part: u64, whole: u64, width: usize, colour: Color) -> [Span<'static>; 2] {
    let full = filled_width(part, whole, width);
    let rest = Span::styled("\u{2500}".repeat(width - full), faint());
    [Span::styled("\u{2501}".repeat(full), Style::from(colour)), rest]
}

/// Draws the help over the frame.
fn help(frame: &mut Frame<'_>) {
    let (width, height) = (44, 9);
    let [area] = Layout::horizontal([Constraint::Length(width)]).flex(Flex::Center).areas(frame.area());
    let [area] = Layout::vertical([Constraint::Length(height)]).flex(Flex::Center).areas(area);
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(" keys ");
    frame.render_widget(Paragraph::new(HELP_TEXT).block(block), area);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::commands::top::stats::StatsWindow;
    use crate::commands::top::stats::tests::{lane, snapshot};

    fn stats(queues: usize) -> TopStats {
        let lanes = |done| (0..queues).map(|i| lane(&format!("queue-{i}"), "a", 7, done)).collect();
        let mut window = StatsWindow::default();
        window.add(snapshot(lanes(0)), Duration::ZERO);
        window.add(snapshot(lanes(5)), Duration::from_secs(1))
    }

    fn drawn(stats: &TopStats, selection: RowSelection, help: bool, size: (u16, u16)) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        let now = Timestamp::from_micros(0);
        let view = TuiView { stats, selection, rates: &[1, 2, 3], message: "a word", help, now };
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let rows = buffer.content().chunks(size.0.into());
        rows.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect()).collect()
    }

    #[test]
    fn a_frame_shows_figures_lists_and_keys_in_any_size() {
        for size in [(80, 24), (200, 50), (300, 100)] {
            let text = drawn(&stats(2), RowSelection::default(), false, size).join("\n");
            for words in ["ready 14", "done 10", "10.0/s", "QUEUES", "queue-1", "no workers", "q quits"] {
                assert!(text.contains(words), "{words} at {size:?} in\n{text}");
            }
        }
        // Too small to show anything, but nothing panics.
        for size in [(1, 1), (10, 3), (20, 8)] {
            drawn(&stats(60), RowSelection::default(), true, size);
        }
    }

    #[test]
    fn the_chosen_row_is_always_seen() {
        let stats = stats(60);
        for row in [0, 1, 30, 59] {
            let selection = RowSelection { list: ListKind::Queues, row };
            let text = drawn(&stats, selection, false, (80, 24)).join("\n");
            assert!(text.contains(&format!("queue-{row} ")) || row == 0, "{row} in\n{text}");
            let all = ["QUEUES +", "BATCHES", "WORKERS", "POOLS"];
            assert!(all.iter().all(|title| text.contains(title)), "{text}");
        }
    }

    #[test]
    fn help_covers_the_rest() {
        let text = drawn(&stats(2), RowSelection::default(), true, (80, 24)).join("\n");
        assert!(text.contains(" keys ") && text.contains("shift-tab"), "{text}");
    }
}
