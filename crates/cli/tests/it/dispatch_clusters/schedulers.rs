//! The schedulers as launchers of a pool, with what a test asks them.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Mutex;

use longshore_testkit::servers::{FakeBatchSystem, PrivateGridEngine, PrivateSlurm};

use crate::dispatch::launcher::TestLauncher;

/// A scheduler that also lists its jobs.
pub trait Cluster: TestLauncher {
    /// Options that give a worker fewer processors than the pool assumes: the test's nodes are small.
    fn overcommit(&self) -> Vec<&'static str>;

    /// The pending and running jobs.
    fn job_ids(&self) -> BTreeSet<String>;
}

/// A scheduler that a pool uses while the test queries it.
pub struct SharedCluster<C>(pub Rc<C>);

impl<C: Cluster> TestLauncher for SharedCluster<C> {
    fn qsys(&self) -> &'static str {
        self.0.qsys()
    }

    fn env(&self) -> Vec<(String, String)> {
        self.0.env()
    }

    fn cancel(&self, job: &str) {
        self.0.cancel(job);
    }
}

fn owned_pairs<const N: usize>(env: [(&str, String); N]) -> Vec<(String, String)> {
    env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// `PATH` with this folder first.
fn path_with(folder: &std::path::Path) -> (&'static str, String) {
    let path = std::env::var("PATH").unwrap();
    ("PATH", format!("{}:{path}", folder.display()))
}

fn first_words(output: &str) -> BTreeSet<String> {
    output.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Slurm with three nodes.
pub struct SlurmCluster(pub Mutex<PrivateSlurm>);

impl SlurmCluster {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(settings: &[(&str, &str)]) -> Self {
        Self(Mutex::new(PrivateSlurm::start_with(settings).unwrap()))
    }

    pub fn run(&self, program: &str, args: &[&str]) -> String {
        self.0.lock().unwrap().run(program, args).unwrap()
    }

    fn queued_jobs(&self) -> BTreeSet<String> {
        first_words(&self.run("squeue", &["--noheader", "--format=%i"]))
    }
}

impl TestLauncher for SlurmCluster {
    fn qsys(&self) -> &'static str {
        "slurm_worker"
    }

    fn env(&self) -> Vec<(String, String)> {
        owned_pairs([self.0.lock().unwrap().env()])
    }

    fn cancel(&self, job: &str) {
        self.run("scancel", &[job]);
    }
}

impl Cluster for SlurmCluster {
    fn overcommit(&self) -> Vec<&'static str> {
        vec!["--cpus-per-task=2"]
    }

    fn job_ids(&self) -> BTreeSet<String> {
        self.queued_jobs()
    }
}

/// Torque's commands on that Slurm.
pub struct TorqueCluster {
    slurm: SlurmCluster,
    bin: std::path::PathBuf,
}

impl TorqueCluster {
    pub fn start() -> Self {
        let slurm = SlurmCluster::start();
        let bin = slurm.0.lock().unwrap().torque_commands().unwrap();
        Self { slurm, bin }
    }
}

impl TestLauncher for TorqueCluster {
    fn qsys(&self) -> &'static str {
        "pbs_worker"
    }

    fn env(&self) -> Vec<(String, String)> {
        owned_pairs([self.slurm.0.lock().unwrap().env(), path_with(&self.bin)])
    }

    fn cancel(&self, job: &str) {
        self.slurm.run(self.bin.join("qdel").to_str().unwrap(), &[job]);
    }
}

impl Cluster for TorqueCluster {
    fn overcommit(&self) -> Vec<&'static str> {
        vec!["-l nodes=1:ppn=2"]
    }

    fn job_ids(&self) -> BTreeSet<String> {
        self.slurm.queued_jobs()
    }
}

/// Grid Engine with six slots.
pub struct GridEngineCluster(PrivateGridEngine);

impl GridEngineCluster {
    pub fn start() -> Self {
        Self(PrivateGridEngine::start().unwrap())
    }
}

impl TestLauncher for GridEngineCluster {
    fn qsys(&self) -> &'static str {
        "sge_worker"
    }

    fn env(&self) -> Vec<(String, String)> {
        owned_pairs(self.0.env())
    }

    fn cancel(&self, job: &str) {
        self.0.run("qdel", &[job]).unwrap();
    }
}

impl Cluster for GridEngineCluster {
    fn overcommit(&self) -> Vec<&'static str> {
        vec!["-pe smp 2"]
    }

    fn job_ids(&self) -> BTreeSet<String> {
        let output = self.0.run("qstat", &[]).unwrap();
        first_words(&output).into_iter().filter(|word| word.parse::<u32>().is_ok()).collect()
    }
}

/// A fake OpenPBS, LSF or Kubernetes.
pub struct FakeScheduler {
    pub batch: FakeBatchSystem,
    pub qsys: &'static str,
    /// The command that cancels a job.
    pub kill: &'static [&'static str],
}

impl TestLauncher for FakeScheduler {
    fn qsys(&self) -> &'static str {
        self.qsys
    }

    fn env(&self) -> Vec<(String, String)> {
        owned_pairs([self.batch.env(), path_with(&self.batch.bin())])
    }

    fn cancel(&self, job: &str) {
        let mut command = std::process::Command::new(self.batch.bin().join(self.kill[0]));
        assert!(command.args(&self.kill[1..]).arg(job).envs([self.batch.env()]).status().unwrap().success());
    }
}
