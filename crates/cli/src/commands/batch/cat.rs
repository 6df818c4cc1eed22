//! `batch cat`: prints the output of scripts, wherever it was kept.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use longshore::{BatchId, UnitId};
use longshore_dispatch::client::DispatchClient;
use longshore_dispatch::request::{ClientRequest, ServerReply, UnitDetails, UnitQuery};
use longshore_dispatch::script::{ScriptOutput, expand_placeholders};
use longshore_dispatch::stream::{OutputChannel, RunOutput, RunSelector, find};

use crate::args::batch::BatchCatArgs;
use crate::commands::dispatch::{connect_in, unexpected_reply};
use crate::commands::names::NameLookup;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;

/// Interval between two searches for new output.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// Units per page.
const PAGE: u32 = 1000;

/// Runs the command.
pub async fn run(typed: &BatchCatArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let folder = settings.dispatch.folder(typed.pool.dir.as_deref());
    let mut names = NameLookup::new(Some(&folder), settings);
    let mut cat = OutputPrinter {
        client: connect_in(&folder).await?,
        settings,
        only: match (typed.stdout, typed.stderr) {
            (true, _) => Some(OutputChannel::Stdout),
            (_, true) => Some(OutputChannel::Stderr),
            _ => None,
        },
        printed: BTreeMap::new(),
        is_mixed: false,
        batch: None,
        streams: BTreeMap::new(),
        is_discarded: false,
    };
    let mut waiting = cat.units_of(&names.batch(&typed.whose).await?).await?;
    loop {
        waiting = cat.print(waiting).await?;
        if waiting.is_empty() || !typed.follow {
            break;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    if cat.is_discarded {
        settings.output.note("the output of some scripts was discarded, by --output none");
    }
    if cat.is_mixed {
        let hint = "`--output files:PATTERN --stderr PATTERN` or `stream:DIR` keeps them apart";
        return Err(usage("stdout and stderr of some scripts are kept together, by --output")).hint(hint);
    }
    Ok(ExitCode::Good)
}

/// How much of a run's output was printed.
#[derive(Debug, Clone, Copy, Default)]
struct PrintedBytes {
    attempt: u32,
    stdout: u64,
    stderr: u64,
}

struct OutputPrinter<'a> {
    client: DispatchClient,
    settings: &'a Settings,
    only: Option<OutputChannel>,
    printed: BTreeMap<UnitId, PrintedBytes>,
    /// One channel was asked for, but both are kept together.
    is_mixed: bool,
    /// The batch, if the output of many scripts is printed.
    batch: Option<BatchId>,
    /// Output of the batch in the workers' files, as found in this round, by folder.
    streams: BTreeMap<PathBuf, BTreeMap<UnitId, RunOutput>>,
    /// Whether the output of some scripts was discarded.
    is_discarded: bool,
}

impl OutputPrinter<'_> {
    /// The units of a batch: of an array by index, of a job task by task.
    async fn units_of(&mut self, batch: &BatchId) -> anyhow::Result<Vec<UnitId>> {
        let tenant = &self.settings.tenant;
        let (mut units, mut after) = (Vec::new(), None);
        // An unknown batch is an error, not an empty list.
        let reply = self.client.request(&ClientRequest::Steer(tenant.clone(), batch.clone(), None)).await?;
        let ServerReply::Steered(found) = reply else { return Err(unexpected_reply(&reply)) };
        if found.counts.total() > 1 {
            self.batch = Some(found.id);
        }
        loop {
            let query = UnitQuery { state: None, batch: Some(batch.clone()), after, limit: PAGE };
            match self.client.request(&ClientRequest::Units(tenant.clone(), query)).await? {
                ServerReply::Units(page, next) => {
                    units.extend(
                        page.into_iter().map(|unit| (unit.index.filter(|_| unit.task.is_none()), unit.unit)),
                    );
                    after = next;
                }
                other => return Err(unexpected_reply(&other)),
            }
            if after.is_none() {
                units.sort_unstable();
                return Ok(units.into_iter().map(|(_, unit)| unit).collect());
            }
        }
    }

    /// Prints the new output of these units. Returns the units that have not ended.
    async fn print(&mut self, units: Vec<UnitId>) -> anyhow::Result<Vec<UnitId>> {
        self.streams.clear();
        let mut waiting = Vec::new();
        let mut out = self.settings.output.raw();
        for id in units {
            let request = ClientRequest::Show(self.settings.tenant.clone(), id);
            let unit = match self.client.request(&request).await? {
                ServerReply::Shown(unit) => *unit,
                other => return Err(unexpected_reply(&other)),
            };
            if !unit.view.state.is_final() {
                waiting.push(id);
            }
            self.print_unit(&unit, &mut out)?;
        }
        out.flush()?;
        Ok(waiting)
    }

    fn print_unit(&mut self, unit: &UnitDetails, out: &mut impl Write) -> anyhow::Result<()> {
        let Some(script) = &unit.script else { return Ok(()) };
        let (id, attempt) = (unit.view.unit, unit.view.attempt.max(1));
        let mut printed = self.printed.get(&id).copied().filter(|printed| printed.attempt == attempt);
        let printed = printed.get_or_insert(PrintedBytes { attempt, ..PrintedBytes::default() });
        let wants = |channel| self.only.is_none_or(|only| only == channel);
        match &script.output {
            ScriptOutput::Nothing if self.batch.is_some() => self.is_discarded = true,
            ScriptOutput::Nothing => {
                return Err(usage(format!("the output of unit {id} was discarded, by --output none")));
            }
            ScriptOutput::Tail => {
                let tail = unit.view.report.as_ref().map_or("", |report| report.tail.as_str());
                self.is_mixed |= self.only.is_some();
                if unit.view.state.is_final() && self.only.is_none() && printed.stdout == 0 {
                    out.write_all(tail.as_bytes())?;
                    printed.stdout = tail.len() as u64;
                }
            }
            ScriptOutput::Files { stdout, stderr } => {
                let path = |pattern: &Path| expand_placeholders(pattern, id, unit.index, attempt);
                if stderr.is_none() && self.only.is_some() {
                    self.is_mixed = true;
                } else if wants(OutputChannel::Stdout) {
                    printed.stdout += copy_from(&path(stdout), printed.stdout, out)?;
                }
                if let Some(stderr) = stderr.as_deref().filter(|_| wants(OutputChannel::Stderr)) {
                    printed.stderr += copy_from(&path(stderr), printed.stderr, out)?;
                }
            }
            ScriptOutput::Stream(folder) => {
                printed.stdout += self.copy_stream(folder, id, printed.stdout, out)?;
            }
        }
        self.printed.insert(id, *printed);
        Ok(())
    }

    /// Copies a unit's output from the workers' files, without its first bytes.
    fn copy_stream(
        &mut self,
        folder: &Path,
        unit: UnitId,
        start: u64,
        out: &mut impl Write,
    ) -> anyhow::Result<u64> {
        let of_unit;
        let runs = match &self.batch {
            // The files of an array are searched once per round.
            Some(batch) => match self.streams.entry(folder.to_owned()) {
                Entry::Occupied(found) => found.into_mut(),
                Entry::Vacant(entry) => {
                    entry.insert(read_streams(folder, RunSelector::Array(batch.as_str(), None))?)
                }
            },
            None => {
                of_unit = read_streams(folder, RunSelector::Unit(unit))?;
                &of_unit
            }
        };
        let mut bytes = Vec::new();
        if let Some(run) = runs.get(&unit) {
            run.copy(self.only, &mut bytes)?;
        }
        let new = bytes.get(usize::try_from(start)?..).unwrap_or_default();
        out.write_all(new)?;
        Ok(new.len() as u64)
    }
}

/// Copies a file from `start` on. A script that has not started has none.
fn copy_from(path: &Path, start: u64, out: &mut impl Write) -> anyhow::Result<u64> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    out.write_all(&bytes)?;
    Ok(bytes.len() as u64)
}

/// Output in the workers' files. A folder that no script has written to yet has none.
fn read_streams(folder: &Path, which: RunSelector<'_>) -> anyhow::Result<BTreeMap<UnitId, RunOutput>> {
    let found = match find(folder, which) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        found => found.with_context(|| format!("cannot read the output in {}", folder.display()))?,
    };
    Ok(found.runs.into_iter().map(|run| (run.unit, run)).collect())
}
