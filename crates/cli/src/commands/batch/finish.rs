//! Runs batches to their end, says what became of each, and chooses the exit code.

use std::time::Duration;

use longshore_batch::Initiation;
use longshore_batch::definition::Workers;

use super::conduct::{Conducted, conduct};
use super::ends::Announcement;
use super::place::Place;
use super::summary;
use crate::commands::wait;
use crate::error;
use crate::exit::ExitCode;
use crate::settings::Settings;

/// How long commands may take to end in good order.
pub const CLOSING: Duration = Duration::from_secs(5);

/// Runs the batches and prints a summary, or an error, of each.
pub async fn finish(
    place: &Place,
    initiations: Vec<Initiation>,
    workers: Option<Workers>,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let mut codes = Vec::new();
    let conducted = conduct(place, initiations, workers, settings).await;
    place.commands.close(CLOSING).await;
    for one in conducted? {
        codes.push(match one {
            Ok(one) => {
                summary::print(&one, place, settings).await?;
                code(&one)
            }
            Err(error) => error::report(&error),
        });
    }
    Ok(worst(codes))
}

/// How one batch went.
fn code(conducted: &Conducted) -> ExitCode {
    match conducted {
        Conducted { interrupted: true, .. } => ExitCode::Interrupted,
        Conducted { end: Announcement::Failed(_), .. } => ExitCode::Error,
        Conducted { batch, .. } => wait::batch_code(batch),
    }
}

/// The worst of all.
pub fn worst(codes: impl IntoIterator<Item = ExitCode>) -> ExitCode {
    let rank = |code: &ExitCode| match code {
        ExitCode::Interrupted => 4,
        ExitCode::Error | ExitCode::Usage | ExitCode::Refused => 3,
        ExitCode::Cancelled => 2,
        ExitCode::Failures | ExitCode::Program(_) => 1,
        ExitCode::Good => 0,
    };
    codes.into_iter().max_by_key(rank).unwrap_or(ExitCode::Good)
}
