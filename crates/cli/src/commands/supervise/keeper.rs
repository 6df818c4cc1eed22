//! Carries out what the roster decides, and tells it what happened.

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
use longshore_pool::warden::Warden;
use rustix::process::Signal;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::scout::Scout;
use super::signals::{Signals, Wish};
use crate::exit::ExitCode;
use crate::settings::{LogFormat, Run, Settings, SuperviseSettings, Supervised};
use crate::size;
use crate::span::brief;
use crate::supervise::notify::Notify;
use crate::supervise::process::{self, End, Handle, Plan};
use crate::supervise::scale::{Scale, Tendency};
use crate::supervise::version::{Version, first_line};
use crate::supervise::voice::Voice;
use crate::supervise::{Deed, Ended, Id, Roster, Why};

/// How often memory and version are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long processes have to end when nobody wants to wait.
const GRACE: Duration = Duration::from_secs(5);
/// What systemd is asked to wait while something is under way: until long after the next look.
const PATIENCE: Duration = Duration::from_secs(30);
/// The process that takes up batches at the start; the roster's begin with 1.
const RECOVERY: Id = Id(0);

/// A life that ends, and whose it was.
type Life = Pin<Box<dyn Future<Output = (Id, End)>>>;

/// The supervisor.
pub(super) struct Keeper<'a> {
    /// What was read at the start.
    all: &'a Settings,
    /// What it is about, as it was read last.
    settings: Rc<SuperviseSettings>,
    roster: Roster,
    notify: Notify,
    voice: Voice,
    warden: Arc<Warden>,
    /// This program, by its path: another version may come to lie there.
    program: PathBuf,
    began: Instant,
    running: BTreeMap<Id, Running>,
    lives: FuturesUnordered<Life>,
    version: Option<Version>,
    scout: Scout<'a>,
    /// One for each section.
    scales: Vec<Scale>,
    /// What systemd was told last: that all is well.
    is_ready: bool,
    is_ending: bool,
    /// Something did not end in good order.
    cut_short: bool,
}

/// A process that runs.
struct Running {
    handle: Handle,
    name: String,
    most: Option<u64>,
    is_large: bool,
}

impl<'a> Keeper<'a> {
    /// Has started nothing yet.
    pub(super) fn new(all: &'a Settings, notify: Notify) -> anyhow::Result<Self> {
        let settings = Rc::new(all.supervise.clone());
        let shapes = settings.workers.iter().map(|worker| worker.shape.clone());
        let warden = Warden::shared();
        // A program that leaves its group (a daemon) ends with us too.
        warden.sweep();
        Ok(Self {
            all,
            roster: Roster::new(settings.rules.clone(), shapes),
            notify,
            voice: voice(all.log.format, &settings),
            warden,
            program: std::env::current_exe().context("this program does not know where it is")?,
            began: Instant::now(),
            running: BTreeMap::new(),
            lives: FuturesUnordered::new(),
            version: version(&settings),
            scout: Scout::new(all),
            scales: settings.workers.iter().map(|_| Scale::default()).collect(),
            settings,
            is_ready: false,
            is_ending: false,
            cut_short: false,
        })
    }

    /// Keeps all alive until the end is wanted, or nothing can be kept alive.
    pub(super) async fn keep(mut self, mut signals: Signals) -> anyhow::Result<ExitCode> {
        let mut ticks = interval(self.notify.every().map_or(LOOK, |every| every.min(LOOK)));
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
            if self.roster.is_hopeless() && self.running.is_empty() {
                bail!("nothing is left to keep alive: every section was given up");
            }
            self.tell();
            let due = self.roster.due().map(|due| self.began + due);
            tokio::select! {
                Some((id, end)) = self.lives.next() => self.ended(id, &end),
                wish = signals.next() => self.obey(wish),
                _ = ticks.tick() => self.look(),
                Some(queues) = self.scout.queues() => self.scale(&queues),
                () = sleep_until(due.unwrap_or(self.began)), if due.is_some() => {}
            }
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn step(&mut self) {
        for deed in self.roster.step(self.now()) {
            match deed {
                Deed::Start { id, group, number } => self.start(id, group, number),
                Deed::Ask(id, why) => self.ask(id, why),
                Deed::Kill(id) => self.kill(id),
            }
        }
    }

    fn start(&mut self, id: Id, group: usize, number: u32) {
        let settings = Rc::clone(&self.settings);
        let Some(worker) = settings.workers.get(group) else { return };
        let name = format!("{}.{number}", worker.shape.name);
        let plan = self.plan(worker);
        if let Err(error) = self.run(id, name.clone(), &plan, worker.max_memory) {
            let program = plan.program.display();
            tracing::warn!("{name} cannot be started: {program}: {error}");
            self.follows(id, &name, "");
        }
    }

    fn run(&mut self, id: Id, name: String, plan: &Plan, most: Option<u64>) -> std::io::Result<()> {
        let (handle, life) = process::start(plan, name.clone(), self.voice, &self.warden)?;
        tracing::info!("{name} started: process {}", handle.pid);
        self.running.insert(id, Running { handle, name, most, is_large: false });
        self.lives.push(Box::pin(async move { (id, life.await) }));
        Ok(())
    }

    fn plan(&self, worker: &Supervised) -> Plan {
        let (program, arguments) = match &worker.run {
            Run::Longshore(words) => (self.program.clone(), words.clone()),
            Run::Command(words) => {
                (PathBuf::from(&words[0]), words.get(1..).unwrap_or_default().to_vec())
            }
        };
        let own = worker.env.iter().map(|(name, value)| (name.clone(), value.clone()));
        let env = self.settings.handed_down.iter().cloned().chain(own).collect();
        Plan { program, arguments, dir: worker.dir.clone(), env }
    }

    /// Takes up batches whose initiator is gone, as after a reboot.
    fn recover(&mut self) {
        let arguments = ["batch", "recover"].map(str::to_owned).to_vec();
        let env = self.settings.handed_down.clone();
        let plan = Plan { program: self.program.clone(), arguments, dir: ".".into(), env };
        if let Err(error) = self.run(RECOVERY, "recover".into(), &plan, None) {
            tracing::warn!("batches cannot be taken up: {error}");
        }
    }

    fn ask(&self, id: Id, why: Why) {
        let Some(running) = self.running.get(&id) else { return };
        let why = match why {
            Why::Replaced => "another has taken its place",
            Why::TooMany => "there are more than wanted",
            Why::Over => "everything ends",
        };
        tracing::info!("{} is asked to end: {why}", running.name);
        running.handle.send(Signal::TERM);
    }

    fn kill(&mut self, id: Id) {
        let Some(running) = self.running.get(&id) else { return };
        tracing::warn!("{} did not end in time, and is killed", running.name);
        running.handle.send(Signal::KILL);
        self.cut_short |= self.is_ending;
    }

    fn ended(&mut self, id: Id, end: &End) {
        let Some(running) = self.running.remove(&id) else { return };
        let name = running.name;
        let how = end.status.map_or_else(|| "unknown".to_owned(), |status| status.to_string());
        if id == RECOVERY {
            tracing::info!("{name} has ended: {how}");
            return;
        }
        tracing::info!("{name} has ended: {how}");
        self.follows(id, &name, &end.last);
    }

    /// What the end of a process comes to.
    fn follows(&mut self, id: Id, name: &str, last: &str) {
        match self.roster.ended(id, self.now()) {
            Ended::AsAsked => {}
            Ended::Again(wait) => {
                tracing::warn!("{name} ended unasked; another comes in {}", brief(wait));
            }
            Ended::GivenUp => {
                let rules = &self.settings.rules;
                let (failures, window) = (rules.start_failures, brief(rules.start_window));
                let group = name.rsplit_once('.').map_or(name, |(group, _)| group);
                let last = if last.is_empty() { "nothing" } else { last };
                tracing::error!(
                    "{group} failed to start {failures} times within {window} and is given up; it \
                     said last: {last}. `longshore workers refresh` tries it again"
                );
            }
        }
    }

    fn obey(&mut self, wish: Wish) {
        match wish {
            Wish::End if self.is_ending => {
                tracing::warn!("ending at once");
                self.cut_short = true;
                // A worker of ours takes a second signal as we do.
                self.running.values().for_each(|running| running.handle.send(Signal::TERM));
                self.roster.hurry(self.now(), GRACE);
            }
            Wish::End => {
                tracing::info!("draining; a second signal ends at once");
                self.is_ending = true;
                self.notify.stopping();
                self.roster.end();
                if let Some(recovery) = self.running.get(&RECOVERY) {
                    recovery.handle.send(Signal::TERM);
                }
            }
            Wish::Refresh => self.reload(),
            Wish::More => self.roster.more(),
            Wish::Fewer => self.roster.fewer(),
        }
        if matches!(wish, Wish::More | Wish::Fewer) {
            tracing::info!("{} processes are wanted now", self.roster.count().1);
        }
    }

    /// Reads the sections anew and replaces all; if they cannot be read, all stays as it is.
    fn reload(&mut self) {
        match self.settings.again(&self.all.typed) {
            Ok(settings) => self.adopt(settings),
            Err(error) => {
                tracing::error!(
                    "all stays as it is, for the configuration cannot be used: {error:#}"
                );
                // It waits to hear that this is over.
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
        let shapes = settings.workers.iter().map(|worker| worker.shape.clone());
        self.roster.reshape(settings.rules.clone(), shapes);
        self.scales.resize_with(settings.workers.len(), Scale::default);
        self.scout.look_out(&settings);
        self.voice = voice(self.all.log.format, &settings);
        if settings.version_file != self.settings.version_file
            || settings.settle != self.settings.settle
        {
            self.version = version(&settings);
        }
        self.settings = Rc::new(settings);
    }

    fn refresh(&mut self, why: &str) {
        if self.is_ending {
            return;
        }
        tracing::info!("replacing all, one after the other: {why}");
        self.notify.reloading();
        self.is_ready = false;
        self.roster.refresh(self.now());
    }

    /// Looks at what changes without a word.
    fn look(&mut self) {
        self.notify.alive();
        if !self.is_ready || self.is_ending {
            self.notify.patience(PATIENCE);
        }
        let now = self.now();
        if let (Some(version), Some(file)) = (&mut self.version, &self.settings.version_file) {
            let line = std::fs::read_to_string(file).ok().as_deref().and_then(first_line);
            if version.changed(line.as_deref(), now) {
                self.refresh(&format!("version {} is installed", line.unwrap_or_default()));
            }
        }
        for (id, running) in &mut self.running {
            let used = process::memory(running.handle.pid).unwrap_or(0);
            if !running.is_large && running.most.is_some_and(|most| used > most) {
                running.is_large = true;
                let (name, used) = (&running.name, size::brief(used));
                tracing::info!("{name} uses {used} of memory, which is too much");
                self.roster.replace(*id);
            }
        }
    }

    /// Lets sections follow what is ready for them.
    fn scale(&mut self, queues: &[QueueInfo]) {
        let now = self.now();
        let settings = Rc::clone(&self.settings);
        for (group, worker) in settings.workers.iter().enumerate() {
            let Some(load) = worker.load.as_ref().filter(|_| worker.grows()) else { continue };
            let is_ours =
                |lane: &&QueueInfo| load.queues.is_empty() || load.queues.contains(&lane.queue);
            let running: u64 = queues.iter().filter(is_ours).map(|lane| lane.counts.leased).sum();
            let open = queues.iter().filter(is_ours).filter(|lane| !lane.paused && !lane.suspended);
            let ready: u64 = open.map(|lane| lane.counts.ready).sum();
            let slots = u64::from(load.slots) * u64::from(self.roster.wanted(group));
            let (name, changed) = match self.scales[group].look(ready, running, slots, now) {
                Tendency::More => ("more", self.roster.more_of(group)),
                Tendency::Fewer => ("fewer", self.roster.fewer_of(group)),
                Tendency::Same => continue,
            };
            if changed {
                let (section, wanted) = (&worker.shape.name, self.roster.wanted(group));
                tracing::info!("{section}: {ready} units are ready; one {name}, {wanted} in all");
            }
        }
    }

    /// Tells systemd once all is as it should be.
    fn tell(&mut self) {
        if !self.is_ready && !self.is_ending && self.roster.is_settled() {
            self.is_ready = true;
            let (up, wanted) = self.roster.count();
            tracing::info!("{up} of {wanted} processes run");
            self.notify.ready(&format!("{up} of {wanted} processes run"));
        }
    }
}

/// How lines of output begin: all names have room.
fn voice(format: LogFormat, settings: &SuperviseSettings) -> Voice {
    let names = settings.workers.iter().map(|worker| worker.shape.name.chars().count());
    match format {
        LogFormat::Json => Voice::Json,
        LogFormat::Human => Voice::Prefix(names.max().unwrap_or(0) + 2),
    }
}

/// The version file as it is now, if there is to be one.
fn version(settings: &SuperviseSettings) -> Option<Version> {
    let file = settings.version_file.as_ref()?;
    let installed = std::fs::read_to_string(file).ok();
    Some(Version::new(settings.settle, installed.as_deref().and_then(first_line)))
}
