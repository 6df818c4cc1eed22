//! Filling a batch: look, decide, do, and again.

use std::sync::Arc;

use longshore::store::Refusal;
use longshore::{Batch, Error, SendError};

use super::cursor::Cursor;
use super::page::Pages;
use super::step::{self, Step};
use super::unit::Units;
use super::watch::Watch;
use super::{FillEnd, Filling, InitiateError, Initiation, Initiator, bad_name};
use crate::conductor::summon;

/// One life of an initiator.
pub(super) struct Fill<'a> {
    initiator: &'a Initiator,
    initiation: &'a mut Initiation,
    units: Units,
    pages: Pages,
    watch: Watch,
    /// Rows sent at once; fewer than the initiator's own if the queue is too small for them.
    chunk: u64,
}

impl<'a> Fill<'a> {
    pub(super) async fn begin(
        initiator: &'a Initiator,
        initiation: &'a mut Initiation,
    ) -> Result<Self, InitiateError> {
        let units = Units::new(&initiation.definition).map_err(bad_name)?;
        let pages = Pages::new(Arc::clone(&initiator.source), initiator.page);
        let id = initiation.batch.id.clone();
        let watch = Watch::open(initiator.client.clone(), id).await?;
        Ok(Self { initiator, initiation, units, pages, watch, chunk: initiator.chunk })
    }

    /// Fills the batch to the end.
    pub(super) async fn run(
        mut self,
        on_progress: &mut (dyn FnMut(Filling) + Send),
    ) -> Result<FillEnd, InitiateError> {
        self.summon().await?;
        loop {
            let batch = self.watch.look().await?;
            let cursor = Cursor::read(&batch.cursor)?;
            self.note(&batch, &cursor, on_progress);
            match step::next(&batch, &self.initiation.definition.candidates, self.chunk) {
                Step::End(end) => return Ok(end),
                Step::Wait => self.watch.news().await?,
                Step::Seal => self.seal().await?,
                Step::Send(most) => self.send(&batch, &cursor, most).await?,
            }
        }
    }

    /// Where rows ask together, whoever takes their questions goes before them.
    async fn summon(&self) -> Result<(), InitiateError> {
        let Initiation { batch, definition, .. } = &*self.initiation;
        if definition.ai.provider_batch.is_some() && !batch.status.is_final() {
            summon(&self.initiator.client, &batch.tenant, &batch.id).await?;
        }
        Ok(())
    }

    fn note(
        &mut self,
        batch: &Batch,
        cursor: &Cursor,
        on_progress: &mut (dyn FnMut(Filling) + Send),
    ) {
        let progress = Filling::of(batch, cursor);
        self.initiation.batch.clone_from(batch);
        if progress != std::mem::replace(&mut self.initiation.progress, progress) {
            on_progress(progress);
        }
    }

    async fn seal(&mut self) -> Result<(), InitiateError> {
        self.initiation.writer.seal().await?;
        Ok(())
    }

    /// Sends the next rows behind `cursor`; without any, all are in.
    async fn send(
        &mut self,
        batch: &Batch,
        cursor: &Cursor,
        most: u64,
    ) -> Result<(), InitiateError> {
        if self.initiation.writer.cursor() != batch.cursor {
            // Somebody else fills it, too, or an answer was lost.
            let (id, definition) = (&batch.id, &self.initiation.definition);
            self.initiation.writer = self.initiator.reopen(id, definition).await?;
            return Ok(());
        }
        self.pages.go_to(cursor.key.as_ref());
        let candidates = &self.initiation.definition.candidates;
        let rows = self.pages.take(candidates, most).await?;
        let Some(last) = rows.last() else {
            return self.seal().await;
        };
        let next = cursor.past(last.key.clone(), rows.len() as u64);
        let units: Result<Vec<_>, _> = rows.iter().map(|row| self.units.unit(batch, row)).collect();
        let added = self.initiation.writer.add(units?, next.write()).await;
        self.settle(added.map(drop), rows.len() as u64)
    }

    /// What a chunk of `rows` came to. Where the batch stands now, the next look says.
    fn settle(&mut self, added: Result<(), SendError>, rows: u64) -> Result<(), InitiateError> {
        match added {
            Ok(()) | Err(SendError::CursorMoved(_)) => Ok(()),
            // Sealed or given up in the meantime.
            Err(SendError::Store(Error::BatchRefuses(_))) => Ok(()),
            // More than the queue ever takes at once.
            Err(SendError::Refused(Refusal::Full { .. })) if rows > 1 => {
                self.chunk = rows / 2;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}
