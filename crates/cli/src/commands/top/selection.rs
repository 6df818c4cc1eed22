//! The selection in the live view. Pure.

use super::list::ListKind;
use super::stats::TopStats;

/// The selected list and row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RowSelection {
    pub(super) list: ListKind,
    pub(super) row: usize,
}

impl RowSelection {
    /// Selects the next list.
    pub(super) fn next(&mut self) {
        self.go(1);
    }

    /// Selects the previous list.
    pub(super) fn previous(&mut self) {
        self.go(ListKind::ALL.len() - 1);
    }

    fn go(&mut self, lists: usize) {
        *self = Self { list: ListKind::ALL[(self.at() + lists) % ListKind::ALL.len()], row: 0 };
    }

    fn at(self) -> usize {
        ListKind::ALL.iter().position(|list| *list == self.list).unwrap_or(0)
    }

    /// Selects the row above.
    pub(super) fn up(&mut self) {
        self.row = self.row.saturating_sub(1);
    }

    /// Selects the row below.
    pub(super) fn down(&mut self) {
        self.row += 1;
    }

    /// Moves the selection to an existing row.
    pub(super) fn keep_within(&mut self, stats: &TopStats) {
        self.row = self.row.min(self.list.length(stats).saturating_sub(1));
    }

    /// How many rows each list gets: all if they fit; else the selected list gets most of the
    /// height.
    pub(super) fn row_counts(self, stats: &TopStats, height: usize) -> [usize; 4] {
        let wanted = ListKind::ALL.map(|list| list.length(stats).max(1));
        // Each list has a heading and an empty line.
        let room = height.saturating_sub(2 * ListKind::ALL.len());
        if wanted.iter().sum::<usize>() <= room {
            return wanted;
        }
        let chosen = self.at();
        let others = (room / 6).max(1);
        let mut row_counts = wanted.map(|wanted| wanted.min(others));
        row_counts[chosen] = 0;
        row_counts[chosen] = room.saturating_sub(row_counts.iter().sum()).min(wanted[chosen]).max(1);
        row_counts
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::commands::top::stats::StatsWindow;
    use crate::commands::top::stats::tests::{lane, snapshot};

    #[test]
    fn keys_move_within_what_is_there() {
        let lanes = vec![lane("one", "a", 7, 0), lane("two", "a", 7, 0)];
        let stats = StatsWindow::default().add(snapshot(lanes), Duration::ZERO);
        let mut selection = RowSelection::default();
        for _ in 0..9 {
            selection.down();
            selection.keep_within(&stats);
        }
        assert_eq!(selection.row, 1);
        selection.up();
        selection.up();
        assert_eq!(selection.row, 0);
        for list in [ListKind::Batches, ListKind::Workers, ListKind::Pools, ListKind::Queues] {
            selection.next();
            selection.keep_within(&stats);
            assert_eq!(selection, RowSelection { list, row: 0 });
        }
        selection.previous();
        assert_eq!(selection.list, ListKind::Pools);
    }
}
