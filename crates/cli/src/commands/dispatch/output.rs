//! `dispatch output`: prints the output of scripts from the workers' files.

use std::io::Write;

use anyhow::Context;
use longshore_dispatch::stream::{OutputChannel, OutputSearch, RunOutput, RunSelector, find};
use serde::Serialize;

use crate::args::dispatch::{DispatchOutputArgs, OutputSource};
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;

/// Runs the command.
pub fn run(typed: &DispatchOutputArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let which = match &typed.whose {
        OutputSource::Unit(_) if typed.index.is_some() => {
            return Err(usage("--index is for arrays"));
        }
        OutputSource::Unit(unit) => RunSelector::Unit(*unit),
        OutputSource::Array(name) => RunSelector::Array(name.as_str(), typed.index),
    };
    let folder = &typed.from;
    let found = find(folder, which);
    let OutputSearch { runs, damaged_entries: torn } =
        found.with_context(|| format!("cannot read the output in {}", folder.display()))?;
    if runs.is_empty() {
        return Err(anyhow::anyhow!("no output of it found in {}", folder.display()))
            .hint("a script's output appears soon after its first line");
    }
    let only = match (typed.stdout, typed.stderr) {
        (true, _) => Some(OutputChannel::Stdout),
        (_, true) => Some(OutputChannel::Stderr),
        _ => None,
    };
    let lost = if settings.output.is_json() {
        print_json(&runs, only, settings)?
    } else {
        print_raw(&runs, only, settings)?
    };
    if torn + lost > 0 {
        let words = "were truncated when a worker was killed, or are damaged";
        settings.output.note(format!("{torn} entries and {lost} bytes {words}"));
    }
    Ok(ExitCode::Good)
}

fn print_raw(runs: &[RunOutput], only: Option<OutputChannel>, settings: &Settings) -> anyhow::Result<u64> {
    let mut out = settings.output.raw();
    let mut lost = 0;
    for run in runs {
        lost += run.copy(only, &mut out)?.lost;
    }
    out.flush()?;
    Ok(lost)
}

/// A run as JSON.
#[derive(Serialize)]
struct ScriptOutput {
    unit: longshore::UnitId,
    index: Option<u64>,
    attempt: u32,
    /// Whether the output is complete.
    whole: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<String>,
}

/// Prints one line of JSON for each run.
fn print_json(runs: &[RunOutput], only: Option<OutputChannel>, settings: &Settings) -> anyhow::Result<u64> {
    let mut lost = 0;
    for run in runs {
        let mut text = |channel| {
            if only.is_some_and(|only| only != channel) {
                return anyhow::Ok(None);
            }
            let mut bytes = Vec::new();
            lost += run.copy(Some(channel), &mut bytes)?.lost;
            Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
        };
        let (stdout, stderr) = (text(OutputChannel::Stdout)?, text(OutputChannel::Stderr)?);
        let RunOutput { unit, index, attempt, is_complete: whole, .. } = *run;
        settings.output.json(&ScriptOutput { unit, index, attempt, whole, stdout, stderr })?;
    }
    Ok(lost)
}
