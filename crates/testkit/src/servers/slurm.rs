//! A private Slurm: three nodes on this machine, without munge, cgroups or a database.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::process_guard::ProcessGuard;
use super::{free_ports, program, run};

/// The number of nodes: `n1`, `n2`, `n3`.
const NODES: usize = 3;
const PACKAGES: &str = "slurmctld, slurmd and slurm-client";

/// Where `./test` unpacks Slurm's Torque wrappers: their package conflicts with Grid Engine's.
const TORQUE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/slurm-wlm-torque/usr/bin");

const GUARD_SCRIPT: &str = r#"nodes=$1
start() { SLURM_CONF="$folder/slurm.conf" "$@" </dev/null >>"$folder/log/main" 2>&1 & }
ask() { SLURM_CONF="$folder/slurm.conf" sinfo -h "$@" 2>/dev/null; }
idle() { [ "$(ask -t idle -o %D)" = "$nodes" ]; }
obey() {
  case $1 in
    lose) kill -9 "$(cat "$folder/slurmd.$2.pid")" ;;
    halt) pid=$(cat "$folder/slurmctld.pid"); kill "$pid"; wait "$pid" ;;
    go) start slurmctld -D; within ask ;;
  esac
}
start slurmctld -D -c
for n in $(seq "$nodes"); do start slurmd -D -N "n$n"; done
within idle
ready obey"#;

/// A Slurm for one test, over TCP on loopback. Dropping it stops and removes it and its jobs.
///
/// Jobs run as the user of the test. Each node has two processors and 2000 MB, independent of the machine.
#[derive(Debug)]
pub struct PrivateSlurm {
    guard: ProcessGuard,
}

impl PrivateSlurm {
    /// Starts a Slurm; takes a second or two.
    pub fn start() -> io::Result<Self> {
        Self::start_with(&[])
    }

    /// Starts a Slurm with settings, such as `("MinJobAge", "2")`.
    pub fn start_with(chosen: &[(&str, &str)]) -> io::Result<Self> {
        let folders = [PathBuf::from("/usr/sbin")];
        for name in ["slurmctld", "slurmd", "sbatch"] {
            program(name, &folders, PACKAGES)?;
        }
        let folder = ProcessGuard::folder("slurm")?;
        std::fs::create_dir(folder.path().join("state"))?;
        std::fs::write(folder.path().join("slurm.conf"), settings(folder.path(), chosen)?)?;
        let guard = ProcessGuard::start(folder, GUARD_SCRIPT, &[NODES.to_string()])?;
        Ok(Self { guard })
    }

    /// A folder with Slurm's Torque wrappers. They need the [`env`](Self::env), too.
    pub fn torque_commands(&self) -> io::Result<PathBuf> {
        let package = "slurm-wlm-torque, unpacked below target/slurm-wlm-torque";
        let folder = self.guard.path().join("torque");
        std::fs::create_dir_all(&folder)?;
        let own = ["sbatch", "salloc", "srun", "scancel", "scontrol", "squeue", "sinfo"];
        // The wrappers look for Slurm's commands in their own folder.
        for name in ["qsub", "qstat", "qdel"].into_iter().chain(own) {
            let found = match own.contains(&name) {
                true => program(name, &[], PACKAGES)?,
                false => Some(Path::new(TORQUE).join(name))
                    .filter(|path| path.is_file())
                    .ok_or_else(|| io::Error::other(format!("{name} is missing: install {package}")))?,
            };
            std::os::unix::fs::symlink(found, folder.join(name))?;
        }
        Ok(folder)
    }

    /// The environment variable by which Slurm's commands find it.
    pub fn env(&self) -> (&'static str, String) {
        ("SLURM_CONF", self.guard.path().join("slurm.conf").display().to_string())
    }

    /// Runs a command of Slurm and returns its output.
    pub fn run(&self, program: &str, args: &[&str]) -> io::Result<String> {
        let mut command = Command::new(program);
        command.args(args).envs([self.env()]);
        run(command)
    }

    /// Simulates a lost node: kills its daemon and marks it down. Its jobs keep running.
    pub fn lose_node(&mut self, node: &str) -> io::Result<()> {
        self.guard.send(&format!("lose {node}"))?;
        // Slurm would notice only after half a minute.
        let node = format!("nodename={node}");
        self.run("scontrol", &["update", &node, "state=down", "reason=lost"]).map(drop)
    }

    /// Stops the controller with SIGTERM. Jobs keep running.
    ///
    /// Not with SIGKILL: a killed controller loses the jobs of the last seconds, and ends them after its
    /// restart.
    pub fn stop_controller(&mut self) -> io::Result<()> {
        self.guard.send("halt")
    }

    /// Starts the controller again.
    pub fn start_controller(&mut self) -> io::Result<()> {
        self.guard.send("go")
    }
}

/// The configuration file. Each daemon has its own port.
fn settings(folder: &Path, chosen: &[(&str, &str)]) -> io::Result<String> {
    let ports = free_ports(NODES + 1)?;
    let (folder, controller) = (folder.display(), ports[0]);
    let output_of = |program: &str, arg: &str| {
        let mut command = Command::new(program);
        command.arg(arg);
        run(command).map(|output| output.trim().to_owned())
    };
    let (host, user) = (output_of("hostname", "-s")?, output_of("id", "-un")?);
    let nodes = ports[1..].iter().enumerate().map(|(n, port)| {
        let name = n + 1;
        format!(
            "NodeName=n{name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=2000\n"
        )
    });
    let nodes: String = nodes.collect();
    let chosen: String = chosen.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    // No cgroups, no accounting; the scheduler runs every second instead of every minute.
    Ok(format!(
        "ClusterName=longshore\n\
         SlurmctldHost={host}(127.0.0.1)\n\
         SlurmctldPort={controller}\n\
         SlurmUser={user}\n\
         SlurmdUser={user}\n\
         AuthType=auth/none\n\
         CredType=cred/none\n\
         StateSaveLocation={folder}/state\n\
         SlurmdSpoolDir={folder}/spool.%n\n\
         SlurmctldPidFile={folder}/slurmctld.pid\n\
         SlurmdPidFile={folder}/slurmd.%n.pid\n\
         SlurmctldLogFile={folder}/log/slurmctld.log\n\
         SlurmdLogFile={folder}/log/slurmd.%n.log\n\
         ProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\n\
         SwitchType=switch/none\n\
         MpiDefault=none\n\
         JobAcctGatherType=jobacct_gather/none\n\
         AccountingStorageType=accounting_storage/none\n\
         JobCompType=jobcomp/none\n\
         SelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core\n\
         SchedulerType=sched/backfill\n\
         SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0\n\
         SlurmdParameters=config_overrides\n\
         ReturnToService=2\n\
         KillWait=2\n\
         MessageTimeout=3\n\
         {chosen}{nodes}\
         PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
    ))
}
