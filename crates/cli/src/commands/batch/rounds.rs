//! Rounds of a digest: batches that were left, and then whoever is due. A batch that stands still, or that
//! cannot be worked on, keeps its rows and nobody else's: all others go on.

use std::collections::HashSet;
use std::time::Duration;

use longshore::{Batch, BatchId, BatchStatus};
use longshore_batch::{Definition, Initiation, mail};
use tokio::time::Instant;

use super::finish::{CLOSING, finish, worst};
use super::place::{Checked, Place, Purpose};
use super::run::{begin, take_up, unfinished};
use crate::args::batch::File;
use crate::error::{self, WithHint, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;

/// After so long it is tried again whether all who are due are other batches' still.
const AGAIN: Duration = Duration::from_secs(3600);

/// What a round came to.
pub struct Round {
    /// How it went; nothing if nobody was due.
    pub code: Option<ExitCode>,
    /// What the keys of its messages begin with.
    pub keys: String,
}

/// What is remembered from round to round.
#[derive(Default)]
pub struct Rounds {
    /// Batches of which it was said that they stand still.
    told: HashSet<BatchId>,
    /// A batch found that all who were due were others'.
    vain: Option<Vain>,
}

/// How many were due when there was nothing to do for them, how many others had, and when that was.
struct Vain {
    due: u64,
    held: u64,
    at: Instant,
}

impl Rounds {
    /// The batches of this file that were left, and then whoever is due.
    pub async fn round(&mut self, file: &File, settings: &Settings) -> anyhow::Result<Round> {
        let (mut codes, mut aside) = (Vec::new(), HashSet::new());
        loop {
            let checked = Checked::read(file, Purpose::Run, settings).await?;
            let keys = digest(&checked.definition, settings)?;
            let place = checked.open(settings).await?;
            let open = unfinished(&checked.definition, &place).await?;
            let (stopped, open): (Vec<_>, Vec<_>) =
                open.into_iter().partition(|(batch, _)| batch.status == BatchStatus::Paused);
            self.tell(&stopped, settings);
            let left = open.iter().find(|(batch, _)| !file.new && !aside.contains(&batch.id));
            if let Some((batch, kept)) = left {
                let code = taken_up(&checked, &place, batch, kept, settings).await;
                if code == ExitCode::Interrupted {
                    return Ok(Round { code: Some(code), keys });
                }
                // One that was left yesterday was yesterday's. What cannot be ended would be taken up for ever.
                if !matches!(code, ExitCode::Good | ExitCode::Failures) {
                    aside.insert(batch.id.clone());
                }
                codes.push(code);
                continue;
            }
            codes.extend(stopped.first().map(|_| ExitCode::Cancelled));
            let held = stopped.iter().chain(&open).map(|(batch, _)| batch.counts.live()).sum();
            codes.extend(self.due(&checked, &place, held, file, settings).await?);
            return Ok(Round { code: (!codes.is_empty()).then(|| worst(codes)), keys });
        }
    }

    /// A new batch for whoever is due, unless nobody is, or nobody whom no other batch has.
    async fn due(
        &mut self,
        checked: &Checked,
        place: &Place,
        held: u64,
        file: &File,
        settings: &Settings,
    ) -> anyhow::Result<Option<ExitCode>> {
        let due = checked.source.count(&checked.definition.candidates).await?;
        let is_vain = |vain: &Vain| {
            vain.due == due && vain.held == held && held > 0 && vain.at.elapsed() < AGAIN
        };
        if due == 0 || self.vain.as_ref().is_some_and(is_vain) {
            checked.commands.close(CLOSING).await;
            return Ok(None);
        }
        let initiation = begin(checked, place, file).await?;
        let id = initiation.batch().id.clone();
        let code = worked(place, initiation, checked, settings).await?;
        let batch = place.store.batch(place.client.scope(), &id).await?;
        let empty = batch.sealed && batch.counts.total() == 0;
        self.vain = empty.then(|| Vain { due, held, at: Instant::now() });
        Ok(Some(code))
    }

    /// Says once of each batch that it stands still.
    fn tell(&mut self, stopped: &[(Batch, Definition)], settings: &Settings) {
        self.told.retain(|id| stopped.iter().any(|(batch, _)| batch.id == *id));
        for (batch, _) in stopped {
            let (id, rows) = (&batch.id, batch.counts.live());
            if self.told.insert(id.clone()) {
                let why = batch.reason.as_deref().unwrap_or("by hand");
                settings.output.note(format!(
                    "warning: batch `{id}` of this file is paused: {why}; its {rows} rows wait, all others \
                     are written to"
                ));
                settings.output.note(format!(
                    "hint: `longshore batch resume {id}` lets it go on, `batch cancel {id}` gives its rows free"
                ));
            }
        }
    }
}

/// What the keys of its messages begin with, if it is a digest that can be worked on here.
fn digest(definition: &Definition, settings: &Settings) -> anyhow::Result<String> {
    let Some(mail) = &definition.mail else {
        return Err(usage("the batch file has no section [mail]"))
            .hint("`longshore batch run` is for batches that ask");
    };
    if let Some(pool) = &definition.ai.pool {
        // Rows would wait for another worker, and there is none.
        settings.bounded.shape(pool, None)?;
    }
    Ok(mail::keys(&definition.tenant, &definition.kind, mail.mode))
}

/// One that was left, to its end. What goes wrong with it is said, and is no reason to leave others.
async fn taken_up(
    checked: &Checked,
    place: &Place,
    batch: &Batch,
    kept: &Definition,
    settings: &Settings,
) -> ExitCode {
    let ended = async {
        let initiation = take_up(checked, place, batch, kept, settings).await?;
        worked(place, initiation, checked, settings).await
    };
    ended.await.unwrap_or_else(|error| error::report(&error))
}

async fn worked(
    place: &Place,
    initiation: Initiation,
    checked: &Checked,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    finish(place, vec![initiation], Some(checked.definition.workers), settings).await
}
