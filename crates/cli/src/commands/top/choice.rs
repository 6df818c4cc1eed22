//! What the reader of the live view looks at. Pure.

use super::figures::Figures;
use super::list::List;

/// What the reader looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Choice {
    pub(super) list: List,
    pub(super) row: usize,
}

impl Choice {
    /// The next list.
    pub(super) fn next(&mut self) {
        self.go(1);
    }

    /// The list before.
    pub(super) fn previous(&mut self) {
        self.go(List::ALL.len() - 1);
    }

    fn go(&mut self, lists: usize) {
        *self = Self { list: List::ALL[(self.at() + lists) % List::ALL.len()], row: 0 };
    }

    fn at(self) -> usize {
        List::ALL.iter().position(|list| *list == self.list).unwrap_or(0)
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

    /// How many rows each list may have: all if they fit; else the chosen one most of the room.
    pub(super) fn rooms(self, figures: &Figures, height: usize) -> [usize; 4] {
        let wanted = List::ALL.map(|list| list.length(figures).max(1));
        // A heading and an empty line each.
        let room = height.saturating_sub(2 * List::ALL.len());
        if wanted.iter().sum::<usize>() <= room {
            return wanted;
        }
        let chosen = self.at();
        let others = (room / 6).max(1);
        let mut rooms = wanted.map(|wanted| wanted.min(others));
        rooms[chosen] = 0;
        rooms[chosen] = room.saturating_sub(rooms.iter().sum()).min(wanted[chosen]).max(1);
        rooms
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::commands::top::figures::Past;
    use crate::commands::top::figures::tests::{lane, seen};

    #[test]
    fn keys_move_within_what_is_there() {
        let lanes = vec![lane("one", "a", 7, 0), lane("two", "a", 7, 0)];
        let figures = Past::default().add(seen(lanes), Duration::ZERO);
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
        choice.previous();
        assert_eq!(choice.list, List::Pools);
    }
}
