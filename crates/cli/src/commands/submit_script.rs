//! `submit --script`: submits scripts to a pool.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use longshore::{Batch, BatchId, Counts, Policy, Priority, RetryPolicy, UnitId, UnitState};
use longshore_dispatch::client::{ClientError, DispatchClient};
use longshore_dispatch::request::{
    ArrayItems, ClientRequest, Items, ScriptView, ServerReply, Submission, SubmitConditions, TimePoint,
};
use longshore_dispatch::scheduler::{MEMORY, Obstacle};
use longshore_dispatch::script::{
    COMMAND_TEXT, MAX_TEXT, Script, ScriptOutput, default_policy as script_policy,
};
use longshore_dispatch::system::QueueSystem;
use serde::Serialize;

use super::batch::BatchSummary;
use super::dispatch::{connect, unexpected_reply};
use super::names::NameLookup;
use super::wait::{unit_code, with_wait_limit};
use crate::args::resource;
use crate::args::script::{OutputTarget, ScriptArgs};
use crate::args::submit::SubmitArgs;
use crate::error::{WithHint, hinted, usage};
use crate::exit::ExitCode;
use crate::host_identity;
use crate::settings::Settings;
use crate::time_arg::TimeArg;

/// How long the server may wait before it answers.
const LONG_POLL: Duration = Duration::from_secs(2);
/// Interval between two reads of an array.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Runs the command.
pub async fn run(typed: SubmitArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    check(&typed)?;
    let dir = std::env::current_dir().context("there is no working directory")?;
    let folder = settings.dispatch.folder(typed.script.pool.dir.as_deref());
    let mut names = NameLookup::new(Some(&folder), settings);
    let context = ScriptContext {
        dir: &dir,
        priority: typed.priority,
        slots: typed.weight,
        resources: resource::collect_requests(&typed.resource)?,
        after: names.units(&typed.after).await?,
        awaited: typed.wait,
        conditions: conditions(&typed),
    };
    let submission = submission(&typed.script, context, settings)?;
    let mut client = connect(&typed.script.pool, settings).await?;
    if let Some(qsys) = typed.script.qsys {
        check_base(&mut client, qsys).await?;
    }
    let mut items = submission.items.clone();
    let request = ClientRequest::Submit(Box::new(submission));
    let reply = client.request(&request).await.map_err(|error| resumable(error, &items))?;
    let ServerReply::Submitted { units, existing, unfit, number, batch: record } = reply else {
        return Err(unexpected_reply(&reply));
    };
    warn_if_unfit(&unfit, "it", settings);
    if let Some(existing) = existing {
        items = Items::Once(existing);
    }
    let waiting = async {
        match &items {
            Items::Once(unit) => wait_for_unit(&mut client, *unit, settings).await,
            Items::Each { batch, .. } => {
                settings.output.note(format!("array {batch}"));
                let batch = wait_for_batch(&mut client, batch, typed.script.progress, settings).await?;
                print_counts(&batch, settings)
            }
        }
    };
    if typed.wait {
        let hint = "it continues; `longshore batch status last` shows it";
        return with_wait_limit(typed.wait_limit, hint, waiting).await;
    }
    match &items {
        Items::Once(unit) => {
            let status = if existing.is_some() { "existing" } else { "created" };
            let mut answer = serde_json::json!({ "unit": unit, "status": status });
            if let Some(record) = &record {
                answer["batch"] = serde_json::to_value(record)?;
                answer["number"] = number.into();
            }
            if !unfit.is_empty() {
                answer["unfit"] = serde_json::to_value(&unfit)?;
            }
            settings.output.answer(&answer, || unit.to_string())?;
            Ok(ExitCode::Good)
        }
        Items::Each { batch, .. } => {
            #[derive(Serialize)]
            struct ArrayResult<'a> {
                batch: &'a BatchId,
                number: Option<u64>,
                units: u64,
                #[serde(skip_serializing_if = "<[Obstacle]>::is_empty")]
                unfit: &'a [Obstacle],
            }
            let result = ArrayResult { batch, number, units, unfit: &unfit };
            settings.output.answer(&result, || batch.to_string())?;
            Ok(ExitCode::Good)
        }
    }
}

/// Says how to go on after a connection that broke: the server may have stored nothing, a part or all.
fn resumable(error: ClientError, items: &Items) -> anyhow::Error {
    let hint = match (&error, items) {
        (ClientError::Broken(_), Items::Each { batch, .. }) => {
            format!("the same command with `--name {batch}` submits what is not stored yet")
        }
        (ClientError::Broken(_), Items::Once(unit)) => {
            format!("`longshore unit show {unit}` finds the script if it is stored")
        }
        _ => return error.into(),
    };
    hinted(error.into(), hint)
}

/// Warns if no worker of the pool can ever run what was submitted.
pub fn warn_if_unfit(unfit: &[Obstacle], what: &str, settings: &Settings) {
    if !unfit.is_empty() {
        let why: Vec<String> = unfit.iter().map(ToString::to_string).collect();
        let why = why.join("; ");
        settings.output.note(format!("warning: no worker of this pool can ever run {what}: {why}"));
    }
}

/// Rejects a `--qsys` that does not launch this pool's workers.
async fn check_base(client: &mut DispatchClient, qsys: QueueSystem) -> anyhow::Result<()> {
    let ServerReply::Status(status) = client.request(&ClientRequest::Status).await? else { return Ok(()) };
    if status.base == qsys.base.name() {
        return Ok(());
    }
    let base = &status.base;
    Err(usage(format!("the workers of this pool are started by {base}, not by {}", qsys.base.name())))
        .hint("`--dir` chooses the pool; without `--qsys` any pool will do")
}

/// Rejects options that scripts of a pool do not support.
fn check(typed: &SubmitArgs) -> anyhow::Result<()> {
    let unknown = [
        ("--queue", typed.queue.is_some(), "a pool has one queue; `--dir` chooses the pool"),
        ("--timeout", typed.timeout.is_some(), "`--time` limits a run"),
        ("--max-attempts", typed.max_attempts.is_some(), "`--retries` sets the number of retries"),
        ("--cap-key", typed.cap_key.is_some(), "`--array 1-100%5` limits how many run concurrently"),
    ];
    if let Some((option, _, hint)) = unknown.into_iter().find(|(_, given, _)| *given) {
        return Err(usage(format!("{option} is not for scripts"))).hint(hint);
    }
    let is_array = typed.script.array.is_some() || typed.script.each_line.is_some();
    if typed.key.is_some() && is_array {
        return Err(usage("--key is not for arrays")).hint("an array is recognised by its --name");
    }
    Ok(())
}

/// When the script is accepted, and when it runs.
fn conditions(typed: &SubmitArgs) -> SubmitConditions {
    let delay = typed.delay.map(|delay| TimePoint::After(delay.0));
    SubmitConditions {
        not_before: typed.at.map(TimePoint::At).or(delay),
        deadline: typed.deadline.map(|time| match time {
            TimeArg::Distance(distance) => TimePoint::After(distance),
            TimeArg::At(time) => TimePoint::At(time),
        }),
        key: typed.dedup(),
        full_timeout: match typed.no_wait {
            true => Some(Duration::ZERO),
            false => typed.wait_room.map(|span| span.0),
        },
    }
}

/// Options of a script beside `ScriptArgs`.
pub struct ScriptContext<'a> {
    /// Working directory, to which paths are relative.
    pub dir: &'a Path,
    pub priority: Priority,
    /// Slots it needs without `--nthr`.
    pub slots: u32,
    pub resources: BTreeMap<String, u32>,
    pub after: Vec<UnitId>,
    pub awaited: bool,
    pub conditions: SubmitConditions,
}

/// The request to the server.
pub fn submission(
    call: &ScriptArgs,
    context: ScriptContext<'_>,
    settings: &Settings,
) -> anyhow::Result<Submission> {
    let ScriptContext { dir, priority, slots, mut resources, after, awaited, conditions } = context;
    if let Some(size) = call.mem {
        let mebibytes = size.0.div_ceil(1 << 20);
        resources.insert(MEMORY.to_owned(), u32::try_from(mebibytes).unwrap_or(u32::MAX));
    }
    let usual = script_policy();
    let retry = RetryPolicy { max_attempts: call.retries.saturating_add(1), ..usual.retry };
    Ok(Submission {
        tenant: settings.tenant.clone().unwrap_or_default(),
        script: script(call, dir)?,
        items: items(call, dir)?,
        priority,
        threads: call.nthr.unwrap_or(slots),
        resources,
        after,
        policy: Policy { retry, max_lost: call.crash_limit, ..usual },
        initiated_by: host_identity::initiator(),
        awaited,
        conditions,
    })
}

/// The path of the named script.
pub fn script_path(call: &ScriptArgs, dir: &Path) -> anyhow::Result<PathBuf> {
    let given = call.script.clone().unwrap_or_default();
    let path = dir.join(&given).canonicalize();
    let path = path.with_context(|| format!("cannot find script {}", given.display()))?;
    if !path.is_file() {
        return Err(usage(format!("script {} is not a regular file", given.display())));
    }
    Ok(path)
}

/// The working directory of the script.
pub fn working_directory(call: &ScriptArgs, dir: &Path) -> anyhow::Result<PathBuf> {
    let Some(typed) = &call.cwd else { return Ok(dir.to_path_buf()) };
    let folder = dir.join(typed);
    match folder.is_dir() {
        true => Ok(folder),
        false => Err(usage(format!("--cwd {}: there is no such folder", typed.display()))),
    }
}

/// What a script is: its path, its text if that is submitted, and its arguments.
struct ScriptContent {
    path: PathBuf,
    root: Option<PathBuf>,
    text: Option<String>,
    hash: String,
    args: Vec<String>,
}

fn content(call: &ScriptArgs, dir: &Path) -> anyhow::Result<ScriptContent> {
    let args = call.args.clone();
    let of_text = |path: &str, text: &str, args: Vec<String>| ScriptContent {
        path: path.into(),
        root: None,
        hash: Script::content_hash(text.as_bytes()),
        text: Some(text.to_owned()),
        args,
    };
    if let Some(text) = &call.stdin_text {
        return checked_text(text.clone(), "the script from stdin").map(|text| of_text("stdin", &text, args));
    }
    if let (None, [program, args @ ..]) = (&call.script, args.as_slice()) {
        return Ok(of_text(program, COMMAND_TEXT, args.to_vec()));
    }
    let path = script_path(call, dir)?;
    let root = call.root.as_deref().map_or_else(|| dir.to_path_buf(), |root| dir.join(root));
    let root = root.canonicalize().with_context(|| format!("there is no folder {}", root.display()))?;
    if !path.starts_with(&root) {
        let outside = usage(format!("script {} is not inside {}", path.display(), root.display()));
        let folder = path.parent().unwrap_or(Path::new("/")).display().to_string();
        return Err(outside).hint(format!("`--root {folder}` allows it"));
    }
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read script {}", path.display()))?;
    let hash = Script::content_hash(&bytes);
    let text = match call.snapshot {
        true => {
            let what = format!("script {}", path.display());
            let text = String::from_utf8(bytes).map_err(|_| usage(format!("{what} is not UTF-8")))?;
            Some(checked_text(text, &what)?)
        }
        false => None,
    };
    Ok(ScriptContent { path, root: Some(root), text, hash, args })
}

/// Rejects a text that cannot be an argument of bash.
fn checked_text(text: String, what: &str) -> anyhow::Result<String> {
    if text.len() > MAX_TEXT {
        let size = text.len();
        return Err(usage(format!("{what} has {size} bytes, of {MAX_TEXT} at most")))
            .hint("submit it as a file, without --snapshot");
    }
    if text.contains('\0') {
        return Err(usage(format!("{what} has a zero byte: it is no script")));
    }
    Ok(text)
}

fn script(call: &ScriptArgs, dir: &Path) -> anyhow::Result<Script> {
    let ScriptContent { path, root, text, hash, args } = content(call, dir)?;
    let absolute = |path: &Path| dir.join(path);
    let output = match &call.output {
        OutputTarget::Nothing => ScriptOutput::Nothing,
        OutputTarget::Tail => ScriptOutput::Tail,
        OutputTarget::Stream(folder) => ScriptOutput::Stream(absolute(folder)),
        OutputTarget::Files(pattern) => {
            ScriptOutput::Files { stdout: absolute(pattern), stderr: call.stderr.as_deref().map(absolute) }
        }
    };
    let sentinels = call.sentinels.as_deref().map(absolute);
    sentinels.as_deref().map(check_sentinels).transpose()?;
    Ok(Script {
        content: Some(hash),
        path,
        text,
        args,
        root,
        name: call.name.clone(),
        env: variables(&call.env)?,
        output,
        time: call.time.map(|span| span.0),
        sentinels,
        limits: call.limit.iter().cloned().collect(),
        pin: call.pin,
        dir: working_directory(call, dir)?,
    })
}

/// Rejects a folder for sentinel files that cannot have any. One that is not there yet may be created by
/// the script.
fn check_sentinels(folder: &Path) -> anyhow::Result<()> {
    let problem = match folder.metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => error.to_string(),
        Ok(metadata) if !metadata.is_dir() => "it is not a folder".to_owned(),
        Ok(_) => match rustix::fs::access(folder, rustix::fs::Access::WRITE_OK) {
            Ok(()) => return Ok(()),
            Err(error) => error.to_string(),
        },
    };
    Err(usage(format!("--sentinels {} cannot be used: {problem}", folder.display())))
        .hint("name a folder that the script's user can write to")
}

/// The given variables, and those copied from this environment.
pub fn variables(typed: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut variables = BTreeMap::new();
    for text in typed {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => {
                let value = std::env::var(text);
                let value = value.with_context(|| format!("variable {text} is not set here"));
                (text.clone(), value.hint(format!("`--env {text}=VALUE` sets it"))?)
            }
        };
        let is_part =
            |(at, c): (usize, char)| c == '_' || c.is_ascii_alphabetic() || (at > 0 && c.is_ascii_digit());
        if name.is_empty() || !name.chars().enumerate().all(is_part) {
            return Err(usage(format!("`{name}` is not the name of a variable")))
                .hint("`--env NAME=VALUE` sets a variable, `--env NAME` copies it from here");
        }
        variables.insert(name, value);
    }
    Ok(variables)
}

fn items(call: &ScriptArgs, dir: &Path) -> anyhow::Result<Items> {
    let (items, max_running) = match (&call.array, &call.each_line) {
        (None, None) if call.max_fails.is_some() => {
            return Err(usage("--max-fails is for arrays")).hint("add --array or --each-line");
        }
        (None, None) => return Ok(Items::Once(UnitId::new())),
        (Some(range), _) => (ArrayItems::Ranges(range.ranges.clone()), range.at_most),
        (None, Some(file)) => (ArrayItems::Lines(lines(file, dir)?), None),
    };
    let name = match &call.name {
        Some(name) => name.clone(),
        None => format!("array-{}", UnitId::new()),
    };
    let batch = BatchId::new(name).hint("--name also names the array")?;
    Ok(Items::Each { batch, items, max_running, max_failures: call.max_fails })
}

fn lines(file: &str, dir: &Path) -> anyhow::Result<Vec<String>> {
    let mut bytes = Vec::new();
    let read = match file {
        "-" => std::io::stdin().lock().read_to_end(&mut bytes),
        path => std::fs::File::open(dir.join(path)).and_then(|mut file| file.read_to_end(&mut bytes)),
    };
    read.with_context(|| format!("cannot read {file}"))?;
    if bytes.is_empty() {
        return Err(usage(format!("{file} has no lines")));
    }
    split_lines(&bytes).map_err(|problem| usage(format!("{file}: {problem}")))
}

/// The lines without their line feeds. Everything else stays, as a carriage return or an empty line.
fn split_lines(bytes: &[u8]) -> Result<Vec<String>, String> {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let lines = bytes.split(|byte| *byte == b'\n').zip(1..);
    let checked = lines.map(|(line, number): (&[u8], u64)| {
        if line.contains(&0) {
            return Err(format!("line {number} has a zero byte, which no variable can hold"));
        }
        String::from_utf8(line.to_vec()).map_err(|_| format!("line {number} is not UTF-8"))
    });
    checked.collect()
}

/// Waits for a script's end, and prints its output.
pub async fn wait_for_unit(
    client: &mut DispatchClient,
    unit: UnitId,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    settings.output.note(format!("unit {unit}"));
    loop {
        let view = match client.request(&ClientRequest::Unit(unit, LONG_POLL)).await? {
            ServerReply::Unit(view) => *view,
            other => return Err(unexpected_reply(&other)),
        };
        if view.state.is_final() {
            return print_outcome(&view, settings);
        }
    }
}

fn print_outcome(view: &ScriptView, settings: &Settings) -> anyhow::Result<ExitCode> {
    let output = settings.output;
    if output.is_json() {
        output.json(view)?;
    } else if let Some(report) = &view.report {
        output.piece(&report.tail)?;
    }
    if view.state != UnitState::Done {
        let why = view.failure.as_ref().map_or(String::new(), |failure| format!(": {failure}"));
        output.note(format!("{}{why}", view.state));
    }
    Ok(unit_code(view.state))
}

/// Waits until all scripts of a batch have ended.
pub async fn wait_for_batch(
    client: &mut DispatchClient,
    name: &BatchId,
    progress: bool,
    settings: &Settings,
) -> anyhow::Result<Batch> {
    let bar = progress.then(|| settings.output.bar("{bar:24.green/dim} {percent:>3} %  {msg}"));
    loop {
        let request = ClientRequest::Steer(settings.tenant.clone(), name.clone(), None);
        let reply = client.request(&request).await?;
        let ServerReply::Steered(batch) = reply else { return Err(unexpected_reply(&reply)) };
        let (finished, total) = (batch.counts.finished(), batch.counts.total());
        if let Some(bar) = &bar {
            bar.set_length(total);
            bar.set_position(finished);
            bar.set_message(count_text(&batch));
        }
        // A batch that was given up still cancels the rest.
        if !batch.status.is_open() && finished == total {
            if let Some(bar) = &bar {
                bar.finish_and_clear();
            }
            return Ok(*batch);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn count_text(batch: &Batch) -> String {
    let Counts { done, failed, cancelled, .. } = batch.counts;
    format!("{done} done, {failed} failed, {cancelled} cancelled of {}", batch.counts.total())
}

fn print_counts(batch: &Batch, settings: &Settings) -> anyhow::Result<ExitCode> {
    settings.output.answer(&BatchSummary::of(batch), || count_text(batch))?;
    let all_done = batch.counts.failed + batch.counts.cancelled == 0;
    Ok(if all_done { ExitCode::Good } else { ExitCode::Failures })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_every_byte_but_the_line_feed() {
        let read = |text: &[u8]| split_lines(text);
        let lines = |lines: &[&str]| Ok(lines.iter().map(ToString::to_string).collect());
        assert_eq!(read(b"a\nb\n"), lines(&["a", "b"]));
        assert_eq!(read(b"a\nb"), lines(&["a", "b"]), "without a line feed at the end");
        assert_eq!(read(b" a \r\n\n\tb\n\n"), lines(&[" a \r", "", "\tb", ""]));
        assert_eq!(read(b"\n"), lines(&[""]));
        assert_eq!(read(b"a\nb\0c\n").unwrap_err(), "line 2 has a zero byte, which no variable can hold");
        assert_eq!(read(b"\xff\n").unwrap_err(), "line 1 is not UTF-8");
    }
}
