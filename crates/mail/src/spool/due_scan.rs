//! Finds the due messages in a folder of possibly a million names, in bounded memory.

use std::collections::BinaryHeap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use longshore::Timestamp;

use super::error::SpoolError;
use super::filename::FileName;
use super::shard::Shard;
use super::{State, durable_fs};

/// The modification time of a folder is coarse: a file added right after a scan may not change it. A folder
/// must have been unchanged for this long before a scan can be skipped.
const MIN_UNCHANGED: Duration = Duration::from_secs(2);

/// The due messages of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DueMessages {
    /// Due messages, the first to send first.
    pub names: Vec<FileName>,
    /// Whether there were more than requested.
    pub more: bool,
    /// When the next message becomes due.
    pub next: Option<Timestamp>,
}

/// Remembers the last scan, to skip scans of an unchanged folder.
#[derive(Debug, Default)]
pub(super) struct ScanCache(Mutex<Option<LastScan>>);

#[derive(Debug)]
struct LastScan {
    /// The folder's modification time.
    changed: Timestamp,
    /// When we first saw this modification time.
    seen: Instant,
    /// When the next message is due; `None` if the folder must be scanned again.
    idle: Option<Option<Timestamp>>,
}

impl ScanCache {
    /// The empty result, if the folder is unchanged and nothing became due.
    fn idle(&self, changed: Option<Timestamp>, now: Timestamp) -> Option<DueMessages> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = last.as_ref().filter(|last| Some(last.changed) == changed)?;
        let next = last.idle?;
        next.is_none_or(|next| now < next).then(|| DueMessages { next, ..DueMessages::default() })
    }

    /// Remembers a scan that began at `began`, when the folder's modification time was `changed`.
    fn remember(&self, changed: Option<Timestamp>, began: Instant, due: &DueMessages) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(changed) = changed else { return *last = None };
        let before = last.as_ref().filter(|last| last.changed == changed);
        let seen = before.map_or(began, |last| last.seen);
        let idle = due.names.is_empty() && began.duration_since(seen) >= MIN_UNCHANGED;
        *last = Some(LastScan { changed, seen, idle: idle.then_some(due.next) });
    }
}

impl Shard {
    /// At most `most` due messages, by priority and age.
    pub fn due(&self, now: Timestamp, most: usize) -> Result<DueMessages, SpoolError> {
        let (changed, began) = (durable_fs::changed(&self.spool.dir("pending")), Instant::now());
        if let Some(idle) = self.scan_cache.idle(changed, now) {
            return Ok(idle);
        }
        let mut selection = DueSelection::of(most, now);
        self.spool.walk(State::Pending, |name| {
            if self.has(&name) {
                selection.consider(name);
            }
            Ok(())
        })?;
        let due = selection.due();
        self.scan_cache.remember(changed, began, &due);
        Ok(due)
    }
}

/// Selects the first due messages. Pure.
struct DueSelection {
    now: Timestamp,
    most: usize,
    /// The last one to send is on top.
    first: BinaryHeap<(Timestamp, FileName)>,
    more: bool,
    next: Option<Timestamp>,
}

impl DueSelection {
    fn of(most: usize, now: Timestamp) -> Self {
        Self { now, most, first: BinaryHeap::new(), more: false, next: None }
    }

    fn consider(&mut self, name: FileName) {
        if !name.is_due(self.now) {
            self.next = Some(self.next.map_or(name.due, |next| next.min(name.due)));
            return;
        }
        self.first.push((name.rank(), name));
        if self.first.len() > self.most {
            self.first.pop();
            self.more = true;
        }
    }

    fn due(self) -> DueMessages {
        let names = self.first.into_sorted_vec().into_iter().map(|(_, name)| name).collect();
        DueMessages { names, more: self.more, next: self.next }
    }
}

#[cfg(test)]
mod tests {
    use longshore::Priority;

    use super::super::filename::MessageKey;
    use super::*;

    #[test]
    fn nothing_is_looked_for_where_nothing_can_have_come() {
        let (scan_cache, began) = (ScanCache::default(), Instant::now());
        let at = Timestamp::from_micros;
        let idle = DueMessages { next: Some(at(50)), ..DueMessages::default() };
        scan_cache.remember(Some(at(1)), began, &idle);
        assert_eq!(scan_cache.idle(Some(at(1)), at(40)), None, "something may have come at that moment");
        scan_cache.remember(Some(at(1)), began + MIN_UNCHANGED, &idle);
        assert_eq!(scan_cache.idle(Some(at(1)), at(40)), Some(idle.clone()));
        assert_eq!(scan_cache.idle(Some(at(1)), at(50)), None, "the next is due");
        assert_eq!(scan_cache.idle(Some(at(2)), at(40)), None, "something came");
        scan_cache.remember(Some(at(2)), began + 2 * MIN_UNCHANGED, &idle);
        assert_eq!(scan_cache.idle(Some(at(2)), at(40)), None, "just now");
        assert_eq!(scan_cache.idle(None, at(40)), None);
    }

    #[test]
    fn what_is_urgent_goes_first_and_what_is_low_is_not_overtaken_for_ever() {
        let now = Timestamp::from_micros(1_763_300_000_000_000);
        let name = |ago: u64, priority: Priority, key: &str| {
            FileName::new(now - Duration::from_secs(ago), priority, MessageKey::new(key).expect("a key"))
        };
        let later = FileName::enqueued(
            now,
            now + Duration::from_secs(9),
            Priority::HIGH,
            MessageKey::new("later").expect("a key"),
        );
        let names = [
            name(10, Priority::LOW, "low"),
            name(20, Priority::NORMAL, "normal"),
            name(5, Priority::HIGH, "high"),
            name(9 * 3600, Priority::LOW, "old"),
            later.clone(),
        ];
        let mut selection = DueSelection::of(3, now);
        names.into_iter().for_each(|name| selection.consider(name));
        let due = selection.due();
        let keys: Vec<&str> = due.names.iter().map(|name| name.key.encoded()).collect();
        assert_eq!(keys, ["old", "high", "normal"]);
        assert_eq!((due.more, due.next), (true, Some(later.due)));
    }
}
