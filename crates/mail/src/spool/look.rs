//! What is due: the first of a folder that may have a million names, few of which are kept in mind.

use std::collections::BinaryHeap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use longshore::Timestamp;

use super::error::SpoolError;
use super::name::FileName;
use super::shard::Shard;
use super::{State, disk};

/// What comes right after a look may leave the folder with the time that it had: clocks of disks are coarse.
/// For so long a folder must have been as it is before a look at it tells that nothing has come.
const SETTLED: Duration = Duration::from_secs(2);

/// What there is to do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Due {
    /// Messages that are due, the first first.
    pub names: Vec<FileName>,
    /// Whether there were more than were asked for.
    pub more: bool,
    /// When the next of the others is due.
    pub next: Option<Timestamp>,
}

/// What is remembered of the last look.
#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<Option<Look>>);

#[derive(Debug)]
struct Look {
    /// When the folder was changed, by its own clock.
    changed: Timestamp,
    /// When this was seen first.
    seen: Instant,
    /// When the next is due, if nothing was due when the folder had not changed for long.
    quiet: Option<Option<Timestamp>>,
}

impl Looks {
    /// That nothing is due, if this is known without a look.
    fn quiet(&self, changed: Option<Timestamp>, now: Timestamp) -> Option<Due> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = last.as_ref().filter(|last| Some(last.changed) == changed)?;
        let next = last.quiet?;
        next.is_none_or(|next| now < next).then(|| Due { next, ..Due::default() })
    }

    /// Remembers a look that began at `began`, when the folder had been changed at `changed`.
    fn remember(&self, changed: Option<Timestamp>, began: Instant, due: &Due) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(changed) = changed else { return *last = None };
        let before = last.as_ref().filter(|last| last.changed == changed);
        let seen = before.map_or(began, |last| last.seen);
        let quiet = due.names.is_empty() && began.duration_since(seen) >= SETTLED;
        *last = Some(Look { changed, seen, quiet: quiet.then_some(due.next) });
    }
}

impl Shard {
    /// Messages that are due, at most so many: the most urgent, and among those the oldest.
    pub fn due(&self, now: Timestamp, most: usize) -> Result<Due, SpoolError> {
        let (changed, began) = (disk::changed(&self.spool.within("pending")), Instant::now());
        if let Some(quiet) = self.looks.quiet(changed, now) {
            return Ok(quiet);
        }
        let mut choice = Choice::of(most, now);
        self.spool.walk(State::Pending, |name| {
            if self.has(&name) {
                choice.see(name);
            }
            Ok(())
        })?;
        let due = choice.due();
        self.looks.remember(changed, began, &due);
        Ok(due)
    }
}

/// Pure: which of those that are seen are due, and which of these go first.
struct Choice {
    now: Timestamp,
    most: usize,
    /// The last of them is on top.
    first: BinaryHeap<(Timestamp, FileName)>,
    more: bool,
    next: Option<Timestamp>,
}

impl Choice {
    fn of(most: usize, now: Timestamp) -> Self {
        Self { now, most, first: BinaryHeap::new(), more: false, next: None }
    }

    fn see(&mut self, name: FileName) {
        if name.due > self.now {
            self.next = Some(self.next.map_or(name.due, |next| next.min(name.due)));
            return;
        }
        self.first.push((name.rank(), name));
        if self.first.len() > self.most {
            self.first.pop();
            self.more = true;
        }
    }

    fn due(self) -> Due {
        let names = self.first.into_sorted_vec().into_iter().map(|(_, name)| name).collect();
        Due { names, more: self.more, next: self.next }
    }
}

#[cfg(test)]
mod tests {
    use longshore::Priority;

    use super::super::name::Key;
    use super::*;

    #[test]
    fn nothing_is_looked_for_where_nothing_can_have_come() {
        let (looks, began) = (Looks::default(), Instant::now());
        let at = Timestamp::from_micros;
        let idle = Due { next: Some(at(50)), ..Due::default() };
        looks.remember(Some(at(1)), began, &idle);
        assert_eq!(
            looks.quiet(Some(at(1)), at(40)),
            None,
            "something may have come at that moment"
        );
        looks.remember(Some(at(1)), began + SETTLED, &idle);
        assert_eq!(looks.quiet(Some(at(1)), at(40)), Some(idle.clone()));
        assert_eq!(looks.quiet(Some(at(1)), at(50)), None, "the next is due");
        assert_eq!(looks.quiet(Some(at(2)), at(40)), None, "something came");
        looks.remember(Some(at(2)), began + 2 * SETTLED, &idle);
        assert_eq!(looks.quiet(Some(at(2)), at(40)), None, "just now");
        assert_eq!(looks.quiet(None, at(40)), None);
    }

    #[test]
    fn what_is_urgent_goes_first_and_what_is_low_is_not_overtaken_for_ever() {
        let now = Timestamp::from_micros(1_763_300_000_000_000);
        let name = |ago: u64, priority: Priority, key: &str| {
            FileName::new(now - Duration::from_secs(ago), priority, Key::new(key).expect("a key"))
        };
        let later = FileName::new(
            now + Duration::from_secs(9),
            Priority::HIGH,
            Key::new("later").expect("a key"),
        );
        let names = [
            name(10, Priority::LOW, "low"),
            name(20, Priority::NORMAL, "normal"),
            name(5, Priority::HIGH, "high"),
            name(9 * 3600, Priority::LOW, "old"),
            later.clone(),
        ];
        let mut choice = Choice::of(3, now);
        names.into_iter().for_each(|name| choice.see(name));
        let due = choice.due();
        let keys: Vec<&str> = due.names.iter().map(|name| name.key.as_file()).collect();
        assert_eq!(keys, ["old", "high", "normal"]);
        assert_eq!((due.more, due.next), (true, Some(later.due)));
    }
}
