//! Kinds that are handled by worker processes in any language: `[workers.NAME]` of the
//! configuration.
//!
//! Each section is a pool of processes that speak the worker protocol. A unit is a call of the
//! operation with its kind's name.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use longshore::{AlertSink, Kind, Policy, PoolName, PoolRegistry, ServiceAlert, WorkerBuilder, did_you_mean};
use longshore_pool::engine::{BUILT_IN, HandlePool};
use longshore_pool::{ErrorKind, PoolSettings, Program, WorkerPool};

use crate::error::{hinted, usage};

/// How long processes may take to shut down.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Minimum time between two alerts about one pool.
const ALERT_INTERVAL: Duration = Duration::from_secs(60);

/// Bytes of stderr in the error for a process that could not be started.
const MAX_STDERR: usize = 1500;

/// One section, resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct ExternalWorkerSettings {
    /// Its name.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The kinds it handles; empty means all its operations.
    pub kinds: Vec<Kind>,
    /// Its working directory.
    pub dir: PathBuf,
    /// Variables set in its environment.
    pub env: BTreeMap<String, String>,
    /// A bounded pool of which each call holds a permit.
    pub holds: Option<PoolName>,
    /// The size of the pool; a `max` of 0 means one process per slot.
    pub shape: PoolSettings,
}

/// The open pools of a worker.
#[derive(Default)]
pub struct ExternalWorkers(Vec<ExternalPool>);

/// A pool of worker processes, the kinds it handles, and the bounded pool of which each call holds
/// a permit.
struct ExternalPool {
    pool: WorkerPool,
    kinds: Vec<Kind>,
    holds: Option<PoolName>,
}

impl ExternalWorkers {
    /// Starts the pools that handle a kind in `wanted`, or all if it is empty.
    pub async fn open(all: &[ExternalWorkerSettings], wanted: &[Kind], slots: u32) -> anyhow::Result<Self> {
        let mut pools = Self::default();
        for settings in all {
            let useless = !wanted.is_empty() && !settings.kinds.is_empty();
            if useless && !settings.kinds.iter().any(|kind| wanted.contains(kind)) {
                continue;
            }
            let pool = settings.start(slots).await?;
            let kinds = settings.handled_kinds(&pool)?;
            pools.check_duplicates(&settings.name, &kinds)?;
            pools.0.push(ExternalPool { pool, kinds, holds: settings.holds.clone() });
        }
        Ok(pools)
    }

    /// Rejects a kind that two pools handle: the choice would be arbitrary.
    fn check_duplicates(&self, name: &str, kinds: &[Kind]) -> anyhow::Result<()> {
        for ExternalPool { pool, kinds: known, .. } in &self.0 {
            if let Some(kind) = kinds.iter().find(|kind| known.contains(kind)) {
                return Err(both_handle(pool.name(), name, kind));
            }
        }
        Ok(())
    }

    /// All kinds that the pools handle.
    pub fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.0.iter().flat_map(|opened| &opened.kinds)
    }

    /// Registers the wanted kinds, or all.
    pub fn register(&self, mut to: WorkerBuilder, wanted: &[Kind], registry: &PoolRegistry) -> WorkerBuilder {
        for ExternalPool { pool, kinds, holds } in &self.0 {
            let bounded = holds.as_ref().and_then(|name| registry.find(name));
            for kind in kinds.iter().filter(|kind| wanted.is_empty() || wanted.contains(kind)) {
                to = to.handle_operation(kind.clone(), Policy::default(), pool, kind.as_str());
                if let Some(bounded) = bounded {
                    to = to.require_permit(kind.clone(), bounded.clone());
                }
            }
        }
        to
    }

    /// Raises an alert when a process dies without being told to end, at most once a minute for each pool.
    pub async fn alert_on_deaths(&self, sink: &dyn AlertSink) -> Infallible {
        let watch = |opened: &ExternalPool| {
            let pool = opened.pool.clone();
            async move {
                let mut deaths = 0;
                loop {
                    deaths = pool.wait_for_deaths(deaths).await;
                    let name = pool.name();
                    let message =
                        format!("a process of [workers.{name}] died: the units that it ran run again");
                    sink.send_service_alert(&ServiceAlert { service: "worker-process", message }).await;
                    tokio::time::sleep(ALERT_INTERVAL).await;
                }
            }
        };
        let _: Vec<()> = futures_util::future::join_all(self.0.iter().map(watch)).await;
        std::future::pending().await
    }

    /// Shuts all processes down.
    pub async fn close(&self) {
        let closing = self.0.iter().map(|opened| opened.pool.close(SHUTDOWN_TIMEOUT));
        futures_util::future::join_all(closing).await;
    }
}

impl ExternalWorkerSettings {
    async fn start(&self, slots: u32) -> anyhow::Result<WorkerPool> {
        let mut shape = self.shape.clone();
        let min = shape.min;
        // One process shows whether the command works, and which operations it has.
        shape.min = min.max(1);
        if shape.max == 0 {
            shape.max = (slots as usize).max(shape.min);
        }
        let max = shape.max;
        let mut words = self.command.iter();
        let program = words.next().map(String::as_str).unwrap_or_default();
        let mut program = Program::command(program).args(words).directory(&self.dir);
        program = program.inherit_only(crate::env::inheritable());
        for (name, value) in &self.env {
            program = program.env(name, value);
        }
        let opened = WorkerPool::processes(&self.name, program, shape).await;
        let pool = opened.map_err(|error| self.not_started(error.kind))?;
        pool.resize(min, max)?;
        Ok(pool)
    }

    fn not_started(&self, kind: ErrorKind) -> anyhow::Error {
        let (name, command) = (&self.name, self.command.join(" "));
        let why = kind.with_short_stderr(MAX_STDERR).to_string();
        let hint = match why.contains("cannot run") {
            true => {
                format!("`workers.{name}.command` is a program and its arguments, run in `dir`")
            }
            false => {
                format!("it must speak the worker protocol: python3 -m longshore.check -- {command}")
            }
        };
        let error = anyhow!("{why}").context(format!("[workers.{name}]: `{command}` does not work"));
        hinted(error, hint)
    }

    /// The kinds it handles; an error if it lacks an operation for one.
    fn handled_kinds(&self, pool: &WorkerPool) -> anyhow::Result<Vec<Kind>> {
        let known = pool.list_operations().into_iter().map(|operation| operation.name);
        let known: Vec<String> = known.filter(|name| !BUILT_IN.contains(&name.as_str())).collect();
        if let Some(missing) = self.kinds.iter().find(|kind| !known.contains(&kind.to_string())) {
            return Err(self.missing_operation(missing, &known));
        }
        match self.kinds.is_empty() {
            false => Ok(self.kinds.clone()),
            true if known.is_empty() => Err(self.no_operations()),
            true => known.iter().map(|name| Ok(Kind::new(name)?)).collect(),
        }
    }

    fn no_operations(&self) -> anyhow::Error {
        let error = anyhow!("[workers.{}] has no operations", self.name);
        hinted(error, "a worker names them when it is ready; `noop` and `echo` do not count")
    }

    fn missing_operation(&self, kind: &Kind, known: &[String]) -> anyhow::Error {
        let error = anyhow!("[workers.{}] has no operation for kind `{kind}`", self.name);
        if known.is_empty() {
            return self.no_operations();
        }
        let known = known.iter().map(String::as_str);
        match did_you_mean(kind.as_str(), known.clone()) {
            Some(suggestion) => hinted(error, format!("did you mean `{suggestion}`?")),
            None => hinted(error, format!("it has: {}", known.collect::<Vec<_>>().join(", "))),
        }
    }
}

/// The error for two sections that handle one kind.
pub fn both_handle(one: &str, two: &str, kind: &Kind) -> anyhow::Error {
    let error = usage(format!("`workers.{one}` and `workers.{two}` both handle kind `{kind}`"));
    hinted(error, "list in `kinds` of each what it handles")
}
