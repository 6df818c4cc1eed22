//! Tells a client that waits for the pool how many scripts have failed.

use longshore::store::{Queues, UnitFilter};
use longshore::{Kind, Scope, Timestamp, UnitState};

use super::ClientApi;
use super::admin::error_text;
use crate::request::IdleReport;
use crate::script::KIND;

/// Units per read.
const PAGE: u32 = 1000;

impl ClientApi {
    /// When a wait last found the pool idle.
    pub(in crate::server) fn idle_seen_at(&self) -> Timestamp {
        self.wait_marks.idle_seen_at()
    }

    /// Records that this session submits scripts, before they are stored.
    pub(super) async fn mark_submission(&self, submitter: &str) -> Result<(), String> {
        if !self.wait_marks.has_submitted(submitter) {
            let now = self.client.store_time().await.map_err(error_text)?;
            self.wait_marks.on_submit(submitter, now);
        }
        Ok(())
    }

    pub(super) async fn idle_report(&self, submitter: Option<&str>) -> Result<Option<IdleReport>, String> {
        // Read first: what fails after this is reported by the next wait.
        let now = self.client.store_time().await.map_err(error_text)?;
        let totals = self.client.store().totals(&Scope::All, &Queues::All).await.map_err(error_text)?;
        let counted = self.wait_marks.counted_since(submitter, now);
        if totals.counts.live() > 0 {
            // A wait of another session may find the pool idle first.
            if let Some(submitter) = submitter {
                self.wait_marks.on_submit(submitter, counted.at);
            }
            return Ok(None);
        }
        let failed = self.failed_since(counted.at).await.map_err(error_text)?;
        self.wait_marks.on_idle(submitter, now);
        Ok(Some(IdleReport { since: counted.at, failed, is_complete: counted.is_complete }))
    }

    async fn failed_since(&self, since: Timestamp) -> longshore::Result<u64> {
        let state = Some(UnitState::Failed);
        let filter = UnitFilter { state, batch: None, queue: None, kind: Kind::new(KIND).ok() };
        let (mut failed, mut after) = (0, None);
        loop {
            // The last failure comes first.
            let page = self.client.store().units(&Scope::All, &filter, after.as_deref(), PAGE).await?;
            let count = page.items.iter().take_while(|unit| unit.since >= since).count();
            failed += count as u64;
            after = page.next;
            if count < page.items.len() || after.is_none() {
                return Ok(failed);
            }
        }
    }
}
