//! One run of one script, from its start to the end of the last process it left behind.
//!
//! Started by `process_group(0)` and a working directory and nothing else, so that the standard library
//! can use `posix_spawn`: a fork with hooks costs more the larger the worker is. Whoever a killed
//! worker leaves behind is found by its mark (`longshore_pool::warden`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longshore::session::Lease;
use longshore::time::{Clock, Timestamp};
use longshore_pool::warden::{Exit, Group};
use tokio::time::{sleep, sleep_until, timeout};
use wait4::{ResUse, Wait4};

use super::check::check;
use super::hands::Begin;
use super::orphans::Orphans;
use super::output::{Capture, Destination};
use super::sentinel::Sentinels;
use super::stop::{Stop, Why};
use super::stream::Streams;
use crate::script::{End, Kept, Report, Script};
use crate::wire::{Body, Order};

/// How long output is listened for after the script ended, while processes it left behind still
/// hold the pipe; then they are killed.
const LINGER: Duration = Duration::from_millis(200);

/// How long it is believed that a script may be run.
const BELIEVED: Duration = Duration::from_secs(1);

/// What all runs of a worker have in common.
pub(super) struct Shop {
    pub(super) host: String,
    pub(super) bash: PathBuf,
    /// Every script must be inside one of these, whatever its submitter says.
    pub(super) roots: Vec<PathBuf>,
    /// What scripts inherit, and the warden's mark.
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) clock: Arc<dyn Clock>,
    /// Scripts are not run, but count as done after this long: to measure everything else.
    pub(super) idle_run: Option<Duration>,
    /// What goes nowhere goes there.
    pub(super) nowhere: File,
    /// Where output goes that is kept in few files.
    pub(super) streams: Streams,
    /// Those that outlive their scripts, if somebody looks after them.
    pub(super) orphans: Mutex<Option<Orphans>>,
}

impl Shop {
    /// Tells whoever looks after those that outlive their scripts, if somebody does.
    pub(super) fn orphans<T>(&self, tell: impl FnOnce(&mut Orphans) -> T) -> Option<T> {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(tell)
    }
}

/// What scripts have in common, and whether it may be run, as it was a moment ago: looking again for
/// each of a million would cost as much as starting a tenth of them.
pub(super) struct Known {
    pub(super) body: Body,
    checked: Mutex<Option<(Instant, Result<PathBuf, String>)>>,
}

impl Known {
    pub(super) fn new(body: Body) -> Self {
        Self { body, checked: Mutex::new(None) }
    }

    fn checked(&self, look: impl FnOnce() -> Result<PathBuf, String>) -> Result<PathBuf, String> {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        match &*checked {
            Some((at, answer)) if at.elapsed() < BELIEVED => answer.clone(),
            _ => checked.insert((Instant::now(), look())).1.clone(),
        }
    }
}

/// Runs one script and says how it went. Dropped, the whole group is killed.
pub(super) async fn run(
    shop: Arc<Shop>,
    begin: Begin,
    body: Arc<Known>,
    stop: Arc<Stop>,
) -> (Lease, Report) {
    let lease = begin.order.lease;
    let started = shop.clock.now();
    if let Some(time) = shop.idle_run {
        if !time.is_zero() {
            sleep(time).await;
        }
        return (lease, report(&shop, &begin.order, started, Ended::of(End::Exited(0))));
    }
    if begin.until.is_some_and(|until| until <= tokio::time::Instant::now()) {
        // Its time was over while it waited for room.
        return (lease, unbegun(&shop, &begin.order, End::TimedOut));
    }
    let ended = Run { shop: &shop, begin: &begin, body: &body }.perform(&stop).await;
    (lease, report(&shop, &begin.order, started, ended))
}

/// Runs a script that belongs to the worker's own life.
pub(super) async fn hook(shop: Arc<Shop>, path: PathBuf) -> Result<(), String> {
    let mut command = tokio::process::Command::new(&shop.bash);
    command.arg(path).env_clear().envs(shop.env.iter().cloned()).kill_on_drop(true);
    match command.status().await {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("it ended with {status}")),
        Err(error) => Err(error.to_string()),
    }
}

/// A report of a script that was never begun.
pub(super) fn unbegun(shop: &Shop, order: &Order, end: End) -> Report {
    report(shop, order, shop.clock.now(), Ended::of(end))
}

fn report(shop: &Shop, order: &Order, started: Timestamp, ended: Ended) -> Report {
    let Ended { end, used, tail, remarks, output } = ended;
    Report {
        end,
        host: shop.host.clone(),
        queued: order.queued,
        started: started.as_micros(),
        ended: shop.clock.now().as_micros(),
        cpu: used.as_ref().map_or(Duration::ZERO, |used| used.rusage.utime + used.rusage.stime),
        peak_memory: used.map_or(0, |used| used.rusage.maxrss),
        tail,
        remarks,
        output,
    }
}

/// How a script ended, and what is known of it.
struct Ended {
    end: End,
    used: Option<ResUse>,
    tail: String,
    remarks: Vec<String>,
    output: Option<Kept>,
}

impl Ended {
    fn of(end: End) -> Self {
        Self { end, used: None, tail: String::new(), remarks: Vec::new(), output: None }
    }
}

struct Run<'a> {
    shop: &'a Shop,
    begin: &'a Begin,
    body: &'a Known,
}

impl Run<'_> {
    fn script(&self) -> &Script {
        &self.body.body.script
    }

    async fn perform(&self, stop: &Stop) -> Ended {
        let path = match self.body.checked(|| self.check()) {
            Ok(path) => path,
            Err(problem) => return Ended::of(End::Refused(problem)),
        };
        let mut remarks = Vec::new();
        let sentinels = Sentinels::of(self.script(), self.begin.order.index);
        if let Some(sentinels) = &sentinels {
            remarks.extend(sentinels.remove_old());
        }
        let mut ended = self.started(path, stop).await;
        if let Some(sentinels) = &sentinels {
            remarks.extend(sentinels.leave(&ended.end));
        }
        ended.remarks.splice(0..0, remarks);
        ended
    }

    fn check(&self) -> Result<PathBuf, String> {
        let script = self.script();
        let own: Vec<PathBuf> = script.root.iter().cloned().collect();
        let path = check(&script.path, &own)?;
        if !self.shop.roots.is_empty() {
            check(&script.path, &self.shop.roots)?;
        }
        if !script.dir.is_dir() {
            return Err(format!("there is no directory {}", script.dir.display()));
        }
        Ok(path)
    }

    async fn started(&self, path: PathBuf, stop: &Stop) -> Ended {
        let streams = (&self.shop.streams, self.body.body.batch.as_deref());
        let destination = Destination::open(&self.script().output, &self.begin.order, streams);
        let mut destination = match destination {
            Ok(destination) => destination,
            Err(problem) => return Ended::of(End::Hindered(problem)),
        };
        let child = self.command(path).and_then(|mut command| {
            let capture = destination.connect(&mut command, &self.shop.nowhere)?;
            Ok((command.spawn()?, capture))
        });
        let (child, capture) = match child {
            Ok(started) => started,
            Err(error) => return Ended::of(not_started(&error)),
        };
        self.followed(child, capture, stop).await
    }

    fn command(&self, path: PathBuf) -> io::Result<Command> {
        use std::os::unix::process::CommandExt;
        let script = self.script();
        let mut command = Command::new(&self.shop.bash);
        if script.sentinels.is_some() {
            // The code that is left in a file is the program's own, not that of what it was piped into.
            command.args(["-o", "pipefail"]);
        }
        command.arg(path).args(&script.args).current_dir(&script.dir).process_group(0);
        command.env_clear().envs(self.shop.env.iter().map(|(name, value)| (name, value)));
        command.envs(&script.env).envs(self.variables()).stdin(self.shop.nowhere.try_clone()?);
        Ok(command)
    }

    /// What a script learns about itself.
    fn variables(&self) -> BTreeMap<String, String> {
        let Begin { order, ids, .. } = self.begin;
        let mut variables = BTreeMap::from([
            ("LONGSHORE_UNIT_ID".to_owned(), order.lease.unit.to_string()),
            ("LONGSHORE_ATTEMPT".to_owned(), order.attempt.to_string()),
            ("LONGSHORE_NTHR".to_owned(), order.threads.to_string()),
            ("LONGSHORE_HOST".to_owned(), self.shop.host.clone()),
        ]);
        let mut set = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                variables.insert(name.to_owned(), value);
            }
        };
        set("LONGSHORE_ARRAY_INDEX", order.index.map(|index| index.to_string()));
        set("LONGSHORE_LINE", order.line.clone());
        set("LONGSHORE_BATCH", self.body.body.batch.clone());
        set("LONGSHORE_NAME", self.script().name.clone());
        for (name, ids) in ids {
            let name: String = name.chars().map(variable_character).collect();
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            set(&format!("LONGSHORE_RESOURCE_{name}"), Some(ids.join(",")));
            if name == "GPU" {
                set("CUDA_VISIBLE_DEVICES", Some(ids.join(",")));
            }
        }
        variables
    }

    async fn followed(&self, mut child: Child, capture: Option<Capture>, stop: &Stop) -> Ended {
        let Some(group) = Group::of(Some(child.id())) else {
            return Ended::of(End::Hindered("it has no process id".into()));
        };
        let unit = self.begin.order.lease.unit;
        let number = group.id();
        self.shop.orphans(|orphans| orphans.on_begin(number, unit));
        let exit = Exit::of(&child);
        let mut remarks = limit(&child, &self.script().limits);
        let mut capture = capture;
        let is_heard = capture.is_some();
        let why = {
            let mut heard_all = !is_heard;
            let mut listening = std::pin::pin!(listen(capture.as_mut()));
            let mut limit = std::pin::pin!(self.out_of_time());
            let why = loop {
                tokio::select! {
                    biased;
                    () = exit.ended() => break None,
                    why = stop.told() => break Some(why),
                    () = &mut limit => break Some(Why::OutOfTime),
                    () = &mut listening, if !heard_all => heard_all = true,
                }
            };
            if why.is_some() {
                // Listening goes on meanwhile: a script that is asked to end may have much to say.
                group.ask();
                let mut gone = std::pin::pin!(timeout(GRACE, exit.ended()));
                loop {
                    tokio::select! {
                        _ = &mut gone => break,
                        () = &mut listening, if !heard_all => heard_all = true,
                    }
                }
            }
            if !heard_all {
                let _ = timeout(LINGER, &mut listening).await;
            }
            why
        };
        // Its number is its own until it is waited for: what it left behind goes with it.
        group.release();
        let used = child.wait4().ok();
        let now = tokio::time::Instant::now();
        self.shop.orphans(|orphans| orphans.on_end(now, number));
        let end = match (why, &used) {
            (Some(Why::Cancelled), _) => End::Cancelled,
            (Some(Why::OutOfTime), _) => End::TimedOut,
            (Some(Why::Stopped), _) => End::Interrupted,
            (None, Some(used)) => ended_by(used),
            (None, None) => End::Hindered("nobody knows how it ended".into()),
        };
        let (tail, output) = match capture {
            Some(capture) => {
                let (tail, output, problem) = capture.finish();
                remarks.extend(problem);
                (tail, output)
            }
            None => (String::new(), None),
        };
        Ended { end, used, tail, remarks, output }
    }

    /// Returns once it has run longer than it might.
    async fn out_of_time(&self) {
        let now = tokio::time::Instant::now();
        let limit = self.script().time.and_then(|time| now.checked_add(time));
        match [limit, self.begin.until].into_iter().flatten().min() {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
    }
}

/// How long a script may clean up after TERM before KILL.
const GRACE: Duration = Duration::from_secs(5);

async fn listen(capture: Option<&mut Capture>) {
    match capture {
        Some(capture) => capture.listen().await,
        None => std::future::pending().await,
    }
}

fn variable_character(c: char) -> char {
    if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }
}

fn ended_by(used: &ResUse) -> End {
    use std::os::unix::process::ExitStatusExt;
    match (used.status.code(), used.status.signal()) {
        (Some(code), _) => End::Exited(code),
        (None, Some(signal)) => End::Signalled(signal),
        (None, None) => End::Hindered("it ended in no known way".into()),
    }
}

fn not_started(error: &io::Error) -> End {
    match error.kind() {
        io::ErrorKind::ArgumentListTooLong | io::ErrorKind::InvalidInput => {
            End::Refused(format!("it cannot be started: {error}"))
        }
        // Out of processes or memory: later may be better.
        _ => End::Hindered(format!("it cannot be started: {error}")),
    }
}

/// Holds the script to its limits, by name as `ulimit` knows them; what cannot be set is a remark.
fn limit(child: &Child, limits: &BTreeMap<String, u64>) -> Vec<String> {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let mut remarks = Vec::new();
    for (name, most) in limits {
        let resource = match name.as_str() {
            "as" => Resource::As,
            "core" => Resource::Core,
            "cpu" => Resource::Cpu,
            "data" => Resource::Data,
            "fsize" => Resource::Fsize,
            "nofile" => Resource::Nofile,
            "nproc" => Resource::Nproc,
            "stack" => Resource::Stack,
            other => {
                remarks.push(format!("there is no limit `{other}`"));
                continue;
            }
        };
        let limit = Rlimit { current: Some(*most), maximum: Some(*most) };
        if let Err(error) = prlimit(Some(Pid::from_child(child)), resource, limit) {
            remarks.push(format!("limit `{name}` could not be set: {error}"));
        }
    }
    remarks
}
