//! Corrections of a running batch: a corrected prompt, rules, SQL or limits, for the rows that have not
//! ended.
//!
//! What identifies the rows cannot change: the rows that were sent are in the store, and each has its
//! key, its claim and its retry policy.

use std::time::Duration;

use longshore::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Definition, RowStep};

/// The deadline of a file that is read again differs by the time that the first reading took.
const DEADLINE_TOLERANCE: Duration = Duration::from_secs(60);

/// One correction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Revision {
    /// The revision that it made.
    pub number: u32,
    /// When it was made.
    pub at: Timestamp,
    /// The user or program that made it.
    pub by: String,
    /// The sections of the batch file that it changed.
    pub changed: Vec<String>,
    /// The definition that it replaced, without its own corrections.
    pub replaced: Box<Definition>,
}

/// Why a definition cannot replace another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RevisionError {
    /// A part differs that the rows in the store depend on.
    #[error("`{0}` differs from that of the batch: it cannot change while the batch runs")]
    Fixed(&'static str),
    /// Nothing differs.
    #[error("the batch has this definition already")]
    Unchanged,
}

impl Definition {
    /// This definition, corrected by `new`, which was read with the batch's start as the present.
    pub fn revised(&self, mut new: Self, at: Timestamp, by: &str) -> Result<Self, RevisionError> {
        self.keep_start(&mut new);
        if let Some((name, _)) = self.fixed_parts(&new).into_iter().find(|(_, same)| !same) {
            return Err(RevisionError::Fixed(name));
        }
        let changed: Vec<String> = self.changed_parts(&new).into_iter().map(str::to_owned).collect();
        if changed.is_empty() {
            return Err(RevisionError::Unchanged);
        }
        let number = self.revision.saturating_add(1);
        let replaced = Box::new(Self { revisions: Vec::new(), ..self.clone() });
        let mut revisions = self.revisions.clone();
        revisions.push(Revision { number, at, by: by.to_owned(), changed, replaced });
        Ok(Self { revision: number, revisions, ..new })
    }

    /// Keeps what was fixed when the batch was started.
    fn keep_start(&self, new: &mut Self) {
        if let (Some(own), Some(read)) = (self.deadline, new.deadline)
            && own.since(read).max(read.since(own)) <= DEADLINE_TOLERANCE
        {
            new.deadline = Some(own);
        }
        let own = &self.candidates;
        (new.candidates.sample, new.candidates.skip_since) = (own.sample, own.skip_since);
        new.candidates.keys.clone_from(&own.keys);
        new.trial = self.trial;
        // A batch file does not say which database its URL named: that is `batch rebind`.
        new.fingerprint.clone_from(&self.fingerprint);
        if let (RowStep::Mail(own), RowStep::Mail(read)) = (&self.step, &mut new.step) {
            read.day.clone_from(&own.day);
        }
    }

    /// The parts that cannot change, and whether they are equal.
    fn fixed_parts(&self, new: &Self) -> [(&'static str, bool); 7] {
        let same_step = self.mail().is_some() == new.mail().is_some();
        [
            ("type", self.kind == new.kind),
            ("tenant", self.tenant == new.tenant),
            ("database", self.database == new.database),
            ("candidates", self.candidates == new.candidates),
            ("retry", self.retry == new.retry),
            ("mail", same_step),
            ("ai.mode", self.provider_batch() == new.provider_batch()),
        ]
    }

    fn changed_parts(&self, new: &Self) -> Vec<&'static str> {
        let step = if new.mail().is_some() { "mail" } else { "ai" };
        let parts = [
            ("workers", self.workers == new.workers),
            ("pre", self.pre == new.pre),
            ("step", self.steps == new.steps),
            (step, self.step == new.step),
            ("post", self.post == new.post),
            ("on_lost", self.on_lost == new.on_lost),
            ("deadline", self.deadline == new.deadline),
            ("failures", self.threshold == new.threshold),
            ("completion", self.completion == new.completion),
            ("alerts", self.alerts == new.alerts),
        ];
        parts.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
    }
}
