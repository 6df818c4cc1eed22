//! Kinds that are handled by worker processes in any language: `[workers.NAME]` of the configuration.
//!
//! Each section is a pool of processes that speak the worker protocol; a unit is a call of the
//! operation with its kind's name.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use longshore::{Kind, Policy, PoolBook, PoolName, WorkerBuilder};
use longshore_batch::file::did_you_mean;
use longshore_pool::engine::{BUILT_IN, HandlePool};
use longshore_pool::{ErrorKind, Program, Settings, WorkerPool};

use crate::error::{hinted, usage};

/// How long processes may take to end in good order.
const CLOSING: Duration = Duration::from_secs(5);

/// What is kept of the last words of a process that could not be started.
const STDERR: usize = 1500;

/// One section, as it is meant.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolSettings {
    /// What it is called.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What it handles; none means all that it can do.
    pub kinds: Vec<Kind>,
    /// Where it runs.
    pub dir: PathBuf,
    /// What is set in its environment.
    pub env: BTreeMap<String, String>,
    /// A bounded pool that each call holds a permit of.
    pub holds: Option<PoolName>,
    /// How the pool is shaped; a `max` of 0 means one for each slot.
    pub shape: Settings,
}

/// The pools of a worker, and what each handles.
#[derive(Default)]
pub struct Pools(Vec<Opened>);

/// Worker processes, what they handle, and the bounded pool that each call holds a permit of.
struct Opened {
    pool: WorkerPool,
    kinds: Vec<Kind>,
    holds: Option<PoolName>,
}

impl Pools {
    /// Starts those that have a kind that is `wanted`; none wanted means all.
    pub async fn open(all: &[PoolSettings], wanted: &[Kind], slots: u32) -> anyhow::Result<Self> {
        let mut pools = Self::default();
        for settings in all {
            let useless = !wanted.is_empty() && !settings.kinds.is_empty();
            if useless && !settings.kinds.iter().any(|kind| wanted.contains(kind)) {
                continue;
            }
            let pool = settings.start(slots).await?;
            let kinds = settings.handled(&pool)?;
            pools.refuse_twice(&settings.name, &kinds)?;
            pools.0.push(Opened { pool, kinds, holds: settings.holds.clone() });
        }
        Ok(pools)
    }

    /// No kind is handled by two pools: nobody could say who gets a unit.
    fn refuse_twice(&self, name: &str, kinds: &[Kind]) -> anyhow::Result<()> {
        for Opened { pool, kinds: known, .. } in &self.0 {
            if let Some(kind) = kinds.iter().find(|kind| known.contains(kind)) {
                return Err(both_handle(pool.name(), name, kind));
            }
        }
        Ok(())
    }

    /// Everything they handle.
    pub fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.0.iter().flat_map(|opened| &opened.kinds)
    }

    /// Registers those kinds that are wanted, or all.
    pub fn register(
        &self,
        mut to: WorkerBuilder,
        wanted: &[Kind],
        book: &PoolBook,
    ) -> WorkerBuilder {
        for Opened { pool, kinds, holds } in &self.0 {
            let bounded = holds.as_ref().and_then(|name| book.find(name));
            for kind in kinds.iter().filter(|kind| wanted.is_empty() || wanted.contains(kind)) {
                to = to.handle_operation(kind.clone(), Policy::default(), pool, kind.as_str());
                if let Some(bounded) = bounded {
                    to = to.hold(kind.clone(), bounded.clone());
                }
            }
        }
        to
    }

    /// Ends all processes in good order.
    pub async fn close(&self) {
        let closing = self.0.iter().map(|opened| opened.pool.close(CLOSING));
        futures_util::future::join_all(closing).await;
    }
}

impl PoolSettings {
    async fn start(&self, slots: u32) -> anyhow::Result<WorkerPool> {
        let mut shape = self.shape.clone();
        let min = shape.min;
        // One shows whether it works at all, and what it can do.
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
        let why = kind.with_short_stderr(STDERR).to_string();
        let hint = match why.contains("cannot run") {
            true => {
                format!("`workers.{name}.command` is a program and its arguments, run in `dir`")
            }
            false => {
                format!(
                    "it must speak the worker protocol: python3 -m longshore.check -- {command}"
                )
            }
        };
        let error =
            anyhow!("{why}").context(format!("[workers.{name}]: `{command}` does not work"));
        hinted(error, hint)
    }

    /// The kinds it is for, all of which it must have.
    fn handled(&self, pool: &WorkerPool) -> anyhow::Result<Vec<Kind>> {
        let known = pool.list_operations().into_iter().map(|operation| operation.name);
        let known: Vec<String> = known.filter(|name| !BUILT_IN.contains(&name.as_str())).collect();
        if let Some(missing) = self.kinds.iter().find(|kind| !known.contains(&kind.to_string())) {
            return Err(self.lacks(missing, &known));
        }
        match self.kinds.is_empty() {
            false => Ok(self.kinds.clone()),
            true if known.is_empty() => Err(self.idle()),
            true => known.iter().map(|name| Ok(Kind::new(name)?)).collect(),
        }
    }

    fn idle(&self) -> anyhow::Error {
        let error = anyhow!("[workers.{}] has no operations", self.name);
        hinted(error, "a worker names them when it is ready; `noop` and `echo` do not count")
    }

    fn lacks(&self, kind: &Kind, known: &[String]) -> anyhow::Error {
        let error = anyhow!("[workers.{}] has no operation for kind `{kind}`", self.name);
        if known.is_empty() {
            return self.idle();
        }
        let known = known.iter().map(String::as_str);
        match did_you_mean(kind.as_str(), known.clone()) {
            Some(meant) => hinted(error, format!("did you mean `{meant}`?")),
            None => hinted(error, format!("it has: {}", known.collect::<Vec<_>>().join(", "))),
        }
    }
}

/// Two sections want units of one kind.
pub fn both_handle(one: &str, two: &str, kind: &Kind) -> anyhow::Error {
    let error = usage(format!("`workers.{one}` and `workers.{two}` both handle kind `{kind}`"));
    hinted(error, "say in `kinds` of each what it is for")
}
