//! Executes the reconciler's actions, and reports events to it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use longshore::store::QueueInfo;
use longshore::{byte_size, duration};
use longshore_process::{OrphanReaper, Signal, resident_memory};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::depth_poller::DepthPoller;
use super::signals::{SupervisorRequest, SupervisorSignals};
use crate::config::LogFormat;
use crate::env;
use crate::exit::ExitCode;
use crate::settings::{Settings, SuperviseSettings, SupervisedCommand, SupervisedSection};
use crate::supervise::log_prefix::LineFormat;
use crate::supervise::process::{self, ProcessCommand, ProcessHandle, SupervisedEnd};
use crate::supervise::scale::{ScaleDecision, SectionScaler};
use crate::supervise::sd_notify::SdNotify;
use crate::supervise::version_file::{VersionTracker, first_line};
use crate::supervise::{ExitDecision, ProcessId, Reconciler, StopReason, SupervisorAction};

/// Interval between two checks of memory and version.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time that processes have after a second signal.
const KILL_GRACE: Duration = Duration::from_secs(5);
/// By how much systemd's timeout is extended while something is under way: until long after the
/// next check.
const TIMEOUT_EXTENSION: Duration = Duration::from_secs(30);
/// The process that resumes batches at the start; the reconciler's ids begin with 1.
const RECOVERY: ProcessId = ProcessId(0);

/// A process until its end, with its id.
type ProcessRun = Pin<Box<dyn Future<Output = (ProcessId, SupervisedEnd)>>>;

/// The supervisor.
pub(super) struct Supervisor<'a> {
    /// The settings at the start.
    all: &'a Settings,
    /// The supervised sections, as they were read last.
    settings: Rc<SuperviseSettings>,
    reconciler: Reconciler,
    notify: SdNotify,
    line_format: LineFormat,
    reaper: Arc<OrphanReaper>,
    /// This program by its path: a new version may be installed there.
    program: PathBuf,
    began: Instant,
    running: BTreeMap<ProcessId, RunningProcess>,
    process_runs: FuturesUnordered<ProcessRun>,
    version: Option<VersionTracker>,
    depth_poller: DepthPoller<'a>,
    /// One for each section.
    scales: Vec<SectionScaler>,
    /// The last state reported to systemd.
    is_ready: bool,
    is_ending: bool,
    /// A process was killed or interrupted.
    cut_short: bool,
}

/// A running process.
struct RunningProcess {
    handle: ProcessHandle,
    name: String,
    max_memory: Option<u64>,
    is_large: bool,
}

impl<'a> Supervisor<'a> {
    /// Starts nothing yet.
    pub(super) fn new(all: &'a Settings, notify: SdNotify) -> anyhow::Result<Self> {
        let settings = Rc::new(all.supervise.clone());
        let specs = settings.workers.iter().map(|worker| worker.spec.clone());
        let reaper = OrphanReaper::shared();
        // A program that leaves its process group (a daemon) is terminated with us.
        reaper.sweep();
        Ok(Self {
            all,
            reconciler: Reconciler::new(settings.rules.clone(), specs),
            notify,
            line_format: line_format(all.log.format, &settings),
            reaper,
            program: std::env::current_exe().context("cannot find the path of this program")?,
            began: Instant::now(),
            running: BTreeMap::new(),
            process_runs: FuturesUnordered::new(),
            version: version(&settings),
            depth_poller: DepthPoller::new(all),
            scales: settings.workers.iter().map(|_| SectionScaler::default()).collect(),
            settings,
            is_ready: false,
            is_ending: false,
            cut_short: false,
        })
    }

    /// Keeps all processes alive until a signal, or until every section has been given up.
    pub(super) async fn run_until_stopped(
        mut self,
        mut signals: SupervisorSignals,
    ) -> anyhow::Result<ExitCode> {
        let mut ticks = interval(
            self.notify.watchdog_interval().map_or(CHECK_INTERVAL, |every| every.min(CHECK_INTERVAL)),
        );
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if self.settings.recover {
            self.recover();
        }
        loop {
            self.step();
            if self.is_ending && self.running.is_empty() {
                let code = if self.cut_short { ExitCode::Interrupted } else { ExitCode::Good };
                return Ok(code);
            }
            if self.reconciler.cannot_run() && self.running.is_empty() {
                bail!("no process left to supervise: every section was given up");
            }
            self.report_ready();
            let due = self.reconciler.due().map(|due| self.began + due);
            tokio::select! {
                Some((id, end)) = self.process_runs.next() => self.ended(id, &end),
                request = signals.next() => self.handle_request(request),
                _ = ticks.tick() => self.check(),
                Some(queues) = self.depth_poller.queues() => self.scale(&queues),
                () = sleep_until(due.unwrap_or(self.began)), if due.is_some() => {}
            }
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn step(&mut self) {
        for action in self.reconciler.step(self.now()) {
            match action {
                SupervisorAction::Start { id, section, number } => self.start(id, section, number),
                SupervisorAction::Terminate(id, why) => self.stop(id, why),
                SupervisorAction::Kill(id) => self.kill(id),
            }
        }
    }

    fn start(&mut self, id: ProcessId, section: usize, number: u32) {
        let settings = Rc::clone(&self.settings);
        let Some(worker) = settings.workers.get(section) else { return };
        let name = format!("{}.{number}", worker.spec.name);
        let plan = self.plan(worker);
        if let Err(error) = self.run(id, name.clone(), &plan, worker.max_memory) {
            let program = plan.program.display();
            tracing::warn!("cannot start {name}: {program}: {error}");
            self.handle_end(id, &name, "");
        }
    }

    fn run(
        &mut self,
        id: ProcessId,
        name: String,
        plan: &ProcessCommand,
        max_memory: Option<u64>,
    ) -> std::io::Result<()> {
        let (handle, process_run) = process::start(plan, name.clone(), self.line_format, &self.reaper)?;
        tracing::info!("{name} started: process {}", handle.pid);
        self.running.insert(id, RunningProcess { handle, name, max_memory, is_large: false });
        self.process_runs.push(Box::pin(async move { (id, process_run.await) }));
        Ok(())
    }

    fn plan(&self, worker: &SupervisedSection) -> ProcessCommand {
        // The commands of units can read the environment of another program of their user.
        let (program, arguments, removed_env) = match &worker.run {
            SupervisedCommand::Longshore(words) => (self.program.clone(), words.clone(), &[][..]),
            SupervisedCommand::Command(words) => {
                let arguments = words.get(1..).unwrap_or_default().to_vec();
                (PathBuf::from(&words[0]), arguments, &env::SECRETS[..])
            }
        };
        let own = worker.env.iter().map(|(name, value)| (name.clone(), value.clone()));
        let inherited = self.settings.inherited_env.iter().cloned();
        let inherited = inherited.filter(|(name, _)| !removed_env.contains(&name.as_str()));
        let env = inherited.chain(own).collect();
        ProcessCommand { program, arguments, dir: worker.dir.clone(), removed_env, env }
    }

    /// Resumes batches without a running initiator, as after a reboot.
    fn recover(&mut self) {
        let arguments = ["batch", "recover"].map(str::to_owned).to_vec();
        let env = self.settings.inherited_env.clone();
        let plan = ProcessCommand {
            program: self.program.clone(),
            arguments,
            dir: ".".into(),
            removed_env: &[],
            env,
        };
        if let Err(error) = self.run(RECOVERY, "recover".into(), &plan, None) {
            tracing::warn!("cannot resume batches: {error}");
        }
    }

    fn stop(&self, id: ProcessId, why: StopReason) {
        let Some(running) = self.running.get(&id) else { return };
        let why = match why {
            StopReason::Replaced => "it was replaced",
            StopReason::TooMany => "the section was scaled down",
            StopReason::ShuttingDown => "the supervisor is stopping",
        };
        tracing::info!("{} is told to stop: {why}", running.name);
        running.handle.send(Signal::TERM);
    }

    fn kill(&mut self, id: ProcessId) {
        let Some(running) = self.running.get(&id) else { return };
        tracing::warn!("{} did not stop in time and is killed", running.name);
        running.handle.send(Signal::KILL);
        self.cut_short |= self.is_ending;
    }

    fn ended(&mut self, id: ProcessId, end: &SupervisedEnd) {
        let Some(running) = self.running.remove(&id) else { return };
        let name = running.name;
        let how = end.status.map_or_else(|| "unknown".to_owned(), |status| status.to_string());
        if id == RECOVERY {
            tracing::info!("{name} has ended: {how}");
            return;
        }
        tracing::info!("{name} has ended: {how}");
        self.handle_end(id, &name, &end.last);
    }

    /// Handles the end of a process.
    fn handle_end(&mut self, id: ProcessId, name: &str, last: &str) {
        match self.reconciler.ended(id, self.now()) {
            ExitDecision::Expected => {}
            ExitDecision::Restart(wait) => {
                tracing::warn!("{name} ended unexpectedly; restarting in {}", duration::format(wait));
            }
            ExitDecision::GivenUp => {
                let rules = &self.settings.rules;
                let (failures, window) = (rules.start_failures, duration::format(rules.start_window));
                let section = name.rsplit_once('.').map_or(name, |(section, _)| section);
                let last = if last.is_empty() { "nothing" } else { last };
                tracing::error!(
                    "{section} failed to start {failures} times within {window} and is given up; its last \
                     line of output: {last}. `longshore workers refresh` tries it again"
                );
            }
        }
    }

    fn handle_request(&mut self, request: SupervisorRequest) {
        match request {
            SupervisorRequest::End if self.is_ending => {
                tracing::warn!("stopping at once");
                self.cut_short = true;
                // A Longshore worker also stops at its second signal.
                self.running.values().for_each(|running| running.handle.send(Signal::TERM));
                self.reconciler.shorten_drain(self.now(), KILL_GRACE);
            }
            SupervisorRequest::End => {
                tracing::info!("draining; a second signal stops at once");
                self.is_ending = true;
                self.notify.stopping();
                self.reconciler.end();
                if let Some(recovery) = self.running.get(&RECOVERY) {
                    recovery.handle.send(Signal::TERM);
                }
            }
            SupervisorRequest::Refresh => self.reload(),
            SupervisorRequest::ScaleUp => self.reconciler.scale_up_all(),
            SupervisorRequest::ScaleDown => self.reconciler.scale_down_all(),
        }
        if matches!(request, SupervisorRequest::ScaleUp | SupervisorRequest::ScaleDown) {
            tracing::info!("now {} processes in all", self.reconciler.count().1);
        }
    }

    /// Reads the sections again and replaces all processes; on an error all stay as they are.
    fn reload(&mut self) {
        match self.settings.reload(&self.all.typed) {
            Ok(settings) => self.adopt(settings),
            Err(error) => {
                tracing::error!("reload failed, nothing changes: the configuration is invalid: {error:#}");
                // systemd waits for READY=1 after a reload.
                self.notify.reloading();
                self.is_ready = false;
                return;
            }
        }
        self.refresh("as asked");
    }

    fn adopt(&mut self, settings: SuperviseSettings) {
        for line in self.settings.changes(&settings) {
            tracing::info!("{line}");
        }
        let specs = settings.workers.iter().map(|worker| worker.spec.clone());
        self.reconciler.update_sections(settings.rules.clone(), specs);
        self.scales.resize_with(settings.workers.len(), SectionScaler::default);
        self.depth_poller.update_sections(&settings);
        self.line_format = line_format(self.all.log.format, &settings);
        if settings.version_file != self.settings.version_file || settings.settle != self.settings.settle {
            self.version = version(&settings);
        }
        self.settings = Rc::new(settings);
    }

    fn refresh(&mut self, why: &str) {
        if self.is_ending {
            return;
        }
        tracing::info!("replacing all processes one by one: {why}");
        self.notify.reloading();
        self.is_ready = false;
        self.reconciler.refresh(self.now());
    }

    /// Checks what changes without a notification.
    fn check(&mut self) {
        self.notify.send_watchdog();
        if !self.is_ready || self.is_ending {
            self.notify.extend_timeout(TIMEOUT_EXTENSION);
        }
        let now = self.now();
        if let (Some(version), Some(file)) = (&mut self.version, &self.settings.version_file) {
            let line = std::fs::read_to_string(file).ok().as_deref().and_then(first_line);
            if version.changed(line.as_deref(), now) {
                self.refresh(&format!("version {} is installed", line.unwrap_or_default()));
            }
        }
        for (id, running) in &mut self.running {
            let used = resident_memory(running.handle.pid).unwrap_or(0);
            if !running.is_large && running.max_memory.is_some_and(|max| used > max) {
                running.is_large = true;
                let (name, used) = (&running.name, byte_size::format(used));
                tracing::info!("{name} uses {used} of memory, more than allowed");
                self.reconciler.replace(*id);
            }
        }
    }

    /// Scales sections by their queues' depth.
    fn scale(&mut self, queues: &[QueueInfo]) {
        let now = self.now();
        let settings = Rc::clone(&self.settings);
        for (section, worker) in settings.workers.iter().enumerate() {
            let Some(load) = worker.load.as_ref().filter(|_| worker.can_scale()) else { continue };
            let is_ours = |lane: &&QueueInfo| load.queues.is_empty() || load.queues.contains(&lane.queue);
            let running: u64 = queues.iter().filter(is_ours).map(|lane| lane.counts.leased).sum();
            let open = queues.iter().filter(is_ours).filter(|lane| !lane.paused && !lane.suspended);
            let ready: u64 = open.map(|lane| lane.counts.ready).sum();
            let slots = u64::from(load.slots) * u64::from(self.reconciler.wanted(section));
            let (change, changed) = match self.scales[section].decide(ready, running, slots, now) {
                ScaleDecision::Up => ("more", self.reconciler.scale_up(section)),
                ScaleDecision::Down => ("fewer", self.reconciler.scale_down(section)),
                ScaleDecision::Same => continue,
            };
            if changed {
                let (name, wanted) = (&worker.spec.name, self.reconciler.wanted(section));
                tracing::info!("{name}: {ready} units are ready; one process {change}, {wanted} in all");
            }
        }
    }

    /// Reports to systemd once all processes run.
    fn report_ready(&mut self) {
        if !self.is_ready && !self.is_ending && self.reconciler.is_settled() {
            self.is_ready = true;
            let (up, wanted) = self.reconciler.count();
            tracing::info!("{up} of {wanted} processes run");
            self.notify.ready(&format!("{up} of {wanted} processes run"));
        }
    }
}

/// How lines of output begin: the prefix is as wide as the longest name.
fn line_format(format: LogFormat, settings: &SuperviseSettings) -> LineFormat {
    let names = settings.workers.iter().map(|worker| worker.spec.name.chars().count());
    match format {
        LogFormat::Json => LineFormat::Json,
        LogFormat::Human => LineFormat::Prefix(names.max().unwrap_or(0) + 2),
    }
}

/// The version file's current content, if a file is configured.
fn version(settings: &SuperviseSettings) -> Option<VersionTracker> {
    let file = settings.version_file.as_ref()?;
    let installed = std::fs::read_to_string(file).ok();
    Some(VersionTracker::new(settings.settle, installed.as_deref().and_then(first_line)))
}
