//! `mail digest`: spools a message for every recipient that is due, once or at intervals.

use std::pin::pin;
use std::task::Poll;

use futures_util::poll;

use crate::args::batch::BatchFileArgs;
use crate::args::mail::MailDigestArgs;
use crate::commands::batch::{self, DigestLoop, DigestRound};
use crate::commands::shutdown_signal;
use crate::error;
use crate::exit::ExitCode;
use crate::mail;
use crate::settings::Settings;

use super::eml_export::export_due;

/// Runs the command.
pub async fn run(typed: MailDigestArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let file = file(&typed);
    if typed.dry_run {
        return batch::show_dry_run(&file, settings).await;
    }
    // Fails before anything is done if the spool cannot be opened.
    mail::spool(&settings.mail)?;
    // Handles signals from now on, also between two rounds.
    let mut signal = pin!(shutdown_signal());
    if let Poll::Ready(signal) = poll!(signal.as_mut()) {
        return signal.map(|()| ExitCode::Good);
    }
    let mut digest_loop = DigestLoop::default();
    loop {
        let round = run_round(&mut digest_loop, &typed, &file, settings).await;
        if !typed.daemon {
            return round;
        }
        match round {
            Ok(ExitCode::Interrupted) => return Ok(ExitCode::Good),
            Ok(_) => {}
            // A database that is unavailable may be back for the next round.
            Err(error) => drop(error::report(&error)),
        }
        tokio::select! {
            biased;
            signal = signal.as_mut() => return signal.map(|()| ExitCode::Good),
            () = tokio::time::sleep(typed.every.0) => {}
        }
    }
}

async fn run_round(
    digest_loop: &mut DigestLoop,
    typed: &MailDigestArgs,
    file: &BatchFileArgs,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let DigestRound { code, keys } = digest_loop.run_round(file, settings).await?;
    if code.is_none() && !typed.daemon {
        settings.output.note("no recipient is due: nothing to do");
    }
    match &typed.folder {
        Some(folder) if code != Some(ExitCode::Interrupted) => {
            export_due(folder, &keys, settings).await?;
        }
        _ => {}
    }
    Ok(code.unwrap_or(ExitCode::Good))
}

/// The batch file with the options of `mail digest`.
fn file(typed: &MailDigestArgs) -> BatchFileArgs {
    let MailDigestArgs { file, mode, modulus, val, .. } = typed;
    let share = [("mod", modulus), ("val", val)];
    let share =
        share.into_iter().filter_map(|(name, number)| Some((name.to_owned(), (*number)?.to_string())));
    let param = file.param.iter().cloned().chain(share).collect();
    BatchFileArgs {
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
