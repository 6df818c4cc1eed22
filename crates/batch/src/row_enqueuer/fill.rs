//! Fills a batch: reads its state, decides the next step, performs it, repeats.

use std::sync::Arc;

use longshore::store::{SendRejection, SendResult};
use longshore::{Batch, Error, SendError};

use super::cursor::FillCursor;
use super::next_step::{self, FillStep};
use super::pages::CandidatePages;
use super::unit::UnitFactory;
use super::watcher::BatchWatcher;
use super::{BatchFill, FillEnd, FillError, FillProgress, MAX_TAKEN, RowEnqueuer, TakenRow, bad_name};
use crate::provider_batch::enqueue_runner;
use crate::rows::{Candidate, require_database};
use crate::sql_json::show_key;

/// One pass of an initiator over a batch.
pub(super) struct FillLoop<'a> {
    initiator: &'a RowEnqueuer,
    initiation: &'a mut BatchFill,
    units: UnitFactory,
    pages: CandidatePages,
    watcher: BatchWatcher,
    /// Whether the database is the batch's.
    is_checked: bool,
    /// Rows per chunk; fewer than the initiator's own setting if the queue is too small for it.
    chunk: u64,
}

impl<'a> FillLoop<'a> {
    pub(super) async fn begin(
        initiator: &'a RowEnqueuer,
        initiation: &'a mut BatchFill,
    ) -> Result<Self, FillError> {
        let units = UnitFactory::new(&initiation.definition).map_err(bad_name)?;
        let pages = CandidatePages::new(Arc::clone(&initiator.source), initiator.page);
        let id = initiation.batch.id.clone();
        let watcher = BatchWatcher::open(initiator.client.clone(), id).await?;
        let (is_checked, chunk) = (false, initiator.chunk);
        Ok(Self { initiator, initiation, units, pages, watcher, is_checked, chunk })
    }

    /// Runs until the batch is sealed or given up.
    pub(super) async fn run(
        mut self,
        on_progress: &mut (dyn FnMut(FillProgress) + Send),
    ) -> Result<FillEnd, FillError> {
        self.enqueue_runner().await?;
        loop {
            let batch = self.watcher.read_batch().await?;
            let cursor = FillCursor::read(&batch.cursor)?;
            self.record_progress(&batch, &cursor, on_progress);
            match next_step::next(&batch, &self.initiation.definition.candidates, self.chunk) {
                FillStep::End(end) => return Ok(end),
                FillStep::Wait => self.watcher.wait_for_change().await?,
                FillStep::Seal => self.seal().await?,
                FillStep::Send(max) => self.send(&batch, &cursor, max).await?,
            }
        }
    }

    /// If the rows use a provider batch, its runner is enqueued before them.
    async fn enqueue_runner(&self) -> Result<(), FillError> {
        let BatchFill { batch, definition, .. } = &*self.initiation;
        if definition.provider_batch().is_some() && !batch.status.is_final() {
            enqueue_runner(&self.initiator.client, &batch.tenant, &batch.id).await?;
        }
        Ok(())
    }

    fn record_progress(
        &mut self,
        batch: &Batch,
        cursor: &FillCursor,
        on_progress: &mut (dyn FnMut(FillProgress) + Send),
    ) {
        let progress = FillProgress::of(batch, cursor, &self.initiation.definition.candidates);
        self.initiation.batch.clone_from(batch);
        if progress != std::mem::replace(&mut self.initiation.progress, progress) {
            on_progress(progress);
        }
    }

    async fn seal(&mut self) -> Result<(), FillError> {
        self.initiation.writer.seal().await?;
        Ok(())
    }

    /// Sends the next rows after `cursor`; seals the batch if there are none.
    async fn send(&mut self, batch: &Batch, cursor: &FillCursor, max: u64) -> Result<(), FillError> {
        if self.initiation.writer.cursor() != batch.cursor {
            // Another initiator fills the batch too, or a reply was lost.
            let (id, definition) = (&batch.id, &self.initiation.definition);
            self.initiation.writer = self.initiator.reopen(id, definition).await?;
            return Ok(());
        }
        self.pages.seek(&self.initiation.definition.candidates, cursor);
        let rows = match self.take_rows(max).await {
            Err(FillError::Source(error)) if error.is_retryable() => {
                // The next turn reads the batch, which may be cancelled meanwhile, and tries again.
                tokio::time::sleep(self.initiator.source.retry_delay()).await;
                return Ok(());
            }
            rows => rows?,
        };
        let Some(last) = rows.last() else {
            return self.seal().await;
        };
        let next = cursor.advanced(self.pages.pass(), last.key.clone(), rows.len() as u64);
        let sample = self.initiation.definition.candidates.sample;
        let chosen = rows.iter().zip(cursor.rows..);
        let chosen = chosen.filter(|(_, position)| sample.is_none_or(|sample| sample.has(*position)));
        let chosen: Vec<_> = chosen.map(|(row, _)| row).collect();
        let units: Result<Vec<_>, _> = chosen.iter().map(|row| self.units.unit(batch, row)).collect();
        let added = self.initiation.writer.add(units?, next.write()).await;
        if let Ok(answers) = &added {
            self.note_taken(&chosen, answers).await;
        }
        self.settle(added.map(drop), rows.len() as u64)
    }

    /// Remembers some of the rows that other batches have.
    async fn note_taken(&mut self, rows: &[&Candidate], answers: &[SendResult]) {
        for (row, answer) in rows.iter().zip(answers) {
            let SendResult::Existing(unit) = answer else { continue };
            if self.initiation.taken.len() >= MAX_TAKEN {
                return;
            }
            let client = &self.initiator.client;
            let unit = client.store().unit(client.scope(), *unit).await;
            let batch = unit.ok().and_then(|unit| unit.batch);
            if batch.as_ref() != Some(&self.initiation.batch.id) {
                self.initiation.taken.push(TakenRow { key: show_key(&row.key), batch });
            }
        }
    }

    /// The next rows, from the database that the batch was started with.
    async fn take_rows(&mut self, max: u64) -> Result<Vec<Candidate>, FillError> {
        let definition = &self.initiation.definition;
        if !self.is_checked {
            require_database(definition, &*self.initiator.source).await?;
            self.is_checked = true;
        }
        self.pages.take(&definition.candidates, max).await
    }

    /// Handles the result of sending `rows` rows. The next iteration reads the batch's new state.
    fn settle(&mut self, added: Result<(), SendError>, rows: u64) -> Result<(), FillError> {
        match added {
            Ok(()) | Err(SendError::CursorMoved(_)) => Ok(()),
            // The batch was sealed or given up in the meantime.
            Err(SendError::Store(Error::BatchStatus(_))) => Ok(()),
            // The chunk is larger than the queue's capacity.
            Err(SendError::Rejected(SendRejection::Full { .. })) if rows > 1 => {
                self.chunk = rows / 2;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}
