//! `mail digest`: whoever is due gets a message into the spool, now or again and again.

use std::pin::pin;
use std::task::Poll;

use futures_util::poll;

use crate::args::batch::File;
use crate::args::mail::Digest;
use crate::commands::batch::{self, Round, Rounds};
use crate::commands::interrupted;
use crate::error;
use crate::exit::ExitCode;
use crate::mail;
use crate::settings::Settings;

use super::into_folder::into_folder;

/// Runs the command.
pub async fn run(typed: Digest, settings: &Settings) -> anyhow::Result<ExitCode> {
    let file = file(&typed);
    if typed.dry_run {
        return batch::dry(&file, settings).await;
    }
    // What cannot be kept is not begun.
    mail::spool(&settings.mail)?;
    // Heard from now on, also between two rounds.
    let mut told = pin!(interrupted());
    if let Poll::Ready(told) = poll!(told.as_mut()) {
        return told.map(|()| ExitCode::Good);
    }
    let mut rounds = Rounds::default();
    loop {
        let round = round(&mut rounds, &typed, &file, settings).await;
        if !typed.daemon {
            return round;
        }
        match round {
            Ok(ExitCode::Interrupted) => return Ok(ExitCode::Good),
            Ok(_) => {}
            // A database that is away may be back the next time.
            Err(error) => drop(error::report(&error)),
        }
        tokio::select! {
            biased;
            told = told.as_mut() => return told.map(|()| ExitCode::Good),
            () = tokio::time::sleep(typed.every.0) => {}
        }
    }
}

async fn round(
    rounds: &mut Rounds,
    typed: &Digest,
    file: &File,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let Round { code, keys } = rounds.round(file, settings).await?;
    if code.is_none() && !typed.daemon {
        settings.output.note("nobody is due: nothing to do");
    }
    match &typed.folder {
        Some(folder) if code != Some(ExitCode::Interrupted) => {
            into_folder(folder, &keys, settings).await?;
        }
        _ => {}
    }
    Ok(code.unwrap_or(ExitCode::Good))
}

/// The batch file, with the share and the mode that were typed.
fn file(typed: &Digest) -> File {
    let Digest { file, mode, modulus, val, .. } = typed;
    let share = [("mod", modulus), ("val", val)];
    let share = share
        .into_iter()
        .filter_map(|(name, number)| Some((name.to_owned(), (*number)?.to_string())));
    let param = file.param.iter().cloned().chain(share).collect();
    File {
        path: file.path.clone(),
        param,
        workers: file.workers,
        limit: file.limit,
        allow_duplicates: file.allow_duplicates,
        new: file.new,
        notes: file.notes.clone(),
        mode: *mode,
    }
}
