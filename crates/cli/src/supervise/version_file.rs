//! Decides when a new version counts as installed. Pure.
//!
//! An installation takes a while and may write its version file early, or several times: a change
//! counts once the file has stayed the same for long enough.

use std::time::Duration;

/// The first line of the version file, over time.
#[derive(Debug)]
pub struct VersionTracker {
    settle: Duration,
    running: Option<String>,
    next: Option<(String, Duration)>,
}

impl VersionTracker {
    /// Starts with the installed version; `None` if there is no file yet.
    pub fn new(settle: Duration, installed: Option<String>) -> Self {
        Self { settle, running: installed, next: None }
    }

    /// Whether the running processes are to be replaced, now that the file has `line`. True once
    /// for each change.
    pub fn changed(&mut self, line: Option<&str>, now: Duration) -> bool {
        // A file that is missing for a moment is being written.
        let Some(line) = line else { return false };
        if self.running.as_deref() == Some(line) {
            self.next = None;
            return false;
        }
        match &self.next {
            Some((next, since)) if next == line => {
                if now.saturating_sub(*since) < self.settle {
                    return false;
                }
                // The first version that is read is assumed to be the running one.
                let is_first = self.running.replace(line.to_owned()).is_none();
                self.next = None;
                !is_first
            }
            _ => {
                self.next = Some((line.to_owned(), now));
                self.settle.is_zero() && self.changed(Some(line), now)
            }
        }
    }
}

/// The first line of a version file's content.
pub fn first_line(text: &str) -> Option<String> {
    text.lines().next().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_change_counts_once_it_has_settled() {
        let mut version = VersionTracker::new(at(300), Some("1".into()));
        assert!(!version.changed(Some("1"), at(0)));
        assert!(!version.changed(Some("2"), at(10)));
        assert!(!version.changed(None, at(200)), "it is being written");
        assert!(!version.changed(Some("2"), at(309)));
        assert!(version.changed(Some("2"), at(310)));
        assert!(!version.changed(Some("2"), at(900)), "once");
    }

    #[test]
    fn a_line_that_changes_again_begins_anew_and_one_that_changes_back_is_no_change() {
        let mut version = VersionTracker::new(at(300), Some("1".into()));
        assert!(!version.changed(Some("2"), at(0)));
        assert!(!version.changed(Some("3"), at(299)));
        assert!(!version.changed(Some("3"), at(300)));
        assert!(!version.changed(Some("1"), at(500)));
        assert!(!version.changed(Some("3"), at(600)));
        assert!(version.changed(Some("3"), at(900)));
    }

    #[test]
    fn a_file_that_appears_later_is_what_runs_already() {
        let mut version = VersionTracker::new(at(10), None);
        assert!(!version.changed(Some("1"), at(0)));
        assert!(!version.changed(Some("1"), at(10)));
        assert!(!version.changed(Some("2"), at(20)));
        assert!(version.changed(Some("2"), at(30)));
    }

    #[test]
    fn only_the_first_line_counts() {
        assert_eq!(first_line("7.1 \nbuilt today\n").as_deref(), Some("7.1"));
        assert_eq!(first_line("\n7.1"), None);
    }
}
