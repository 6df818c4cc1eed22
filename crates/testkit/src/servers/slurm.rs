//! A private Slurm: three nodes that are this machine, without munge, cgroups or a database.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::TempDir;

use super::{TRIES, program, run};

/// How many nodes there are: `n1`, `n2`, `n3`.
const NODES: usize = 3;
const PACKAGES: &str = "slurmctld, slurmd and slurm-client";

/// Starts the daemons, obeys orders, and takes everything away once its input ends: when we say so, or
/// when we are no more. What a node's daemon left behind when it was killed is known by its folder,
/// and jobs by a variable that they inherit.
const KEEP: &str = r#"folder=$1 nodes=$2
export PATH="$PATH:/usr/sbin:/sbin"
left() {
  find /proc -maxdepth 2 -name cwd -lname "$folder*" -printf '%h\n'
  grep -lsF "SLURM_CONF=$folder/slurm.conf" /proc/[0-9]*/environ
}
clean() {
  cd /
  kill -9 $(jobs -p)
  looks=0
  while [ "$looks" -lt 2 ]; do
    looks=$((looks + 1))
    for found in $(left); do
      found=${found#/proc/}
      kill -9 "${found%%/*}" && looks=0
    done
  done
  wait
  rm -rf "$folder"
}
trap '' INT TERM HUP
trap 'clean >/dev/null 2>&1' EXIT
start() { SLURM_CONF="$folder/slurm.conf" "$@" </dev/null >>"$folder/log/$1" 2>&1 & }
answers() { SLURM_CONF="$folder/slurm.conf" sinfo -h >/dev/null 2>&1; }
idle() { [ "$(SLURM_CONF="$folder/slurm.conf" sinfo -h -t idle -o %D 2>/dev/null)" = "$nodes" ]; }
within() { # looks for a minute
  local looks=0
  until "$@"; do
    looks=$((looks + 1))
    [ "$looks" -lt 600 ] || { tail -n 30 "$folder"/log/slurmctld >&2; exit 1; }
    sleep 0.1
  done
}
start slurmctld -D -c
for n in $(seq "$nodes"); do start slurmd -D -N "n$n"; done
within idle
echo ready
while read -r order node; do
  case $order in
    lose) kill -9 "$(cat "$folder/slurmd.$node.pid")" ;;
    halt) pid=$(cat "$folder/slurmctld.pid"); kill "$pid"; wait "$pid" ;;
    go) start slurmctld -D; within answers ;;
  esac
  echo done
done"#;

/// A Slurm of one test's own, over TCP on loopback. Stopped and removed when dropped, with its jobs.
///
/// Jobs run as whoever runs the test. A node has two processors and 2000 MB, whatever the machine has.
#[derive(Debug)]
pub struct PrivateSlurm {
    keeper: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    folder: TempDir,
}

impl PrivateSlurm {
    /// Starts one; takes a second or two.
    pub fn start() -> io::Result<Self> {
        let folders = [PathBuf::from("/usr/sbin")];
        for name in ["slurmctld", "slurmd", "sbatch"] {
            program(name, &folders, PACKAGES)?;
        }
        let mut tries = TRIES;
        loop {
            tries -= 1;
            match Self::start_once() {
                Err(error) if tries > 0 && error.to_string().contains("in use") => {}
                answer => return answer,
            }
        }
    }

    fn start_once() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("longshore-slurm-").tempdir()?;
        for name in ["state", "log"] {
            std::fs::create_dir(folder.path().join(name))?;
        }
        std::fs::write(folder.path().join("slurm.conf"), settings(folder.path())?)?;
        let mut command = Command::new("/bin/bash");
        command.args(["-c", KEEP, "keep"]).arg(folder.path()).arg(NODES.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut keeper = command.spawn()?;
        let missing = || io::Error::other("the keeper has no pipe");
        let input = keeper.stdin.take().ok_or_else(missing)?;
        let output = BufReader::new(keeper.stdout.take().ok_or_else(missing)?);
        let mut slurm = Self { keeper, input: Some(input), output, folder };
        slurm.hear("ready")?;
        Ok(slurm)
    }

    /// The variable by which Slurm's commands find it.
    pub fn env(&self) -> (&'static str, String) {
        ("SLURM_CONF", self.folder.path().join("slurm.conf").display().to_string())
    }

    /// Runs one of Slurm's commands and returns what it prints.
    pub fn run(&self, program: &str, args: &[&str]) -> io::Result<String> {
        let mut command = Command::new(program);
        command.args(args).envs([self.env()]);
        run(command)
    }

    /// A node is lost: its daemon is killed, and what runs there runs on.
    pub fn lose(&mut self, node: &str) -> io::Result<()> {
        self.order("lose", node)?;
        // Slurm itself takes half a minute to notice.
        let node = format!("nodename={node}");
        self.run("scontrol", &["update", &node, "state=down", "reason=lost"]).map(drop)
    }

    /// Stops the controller. What runs, runs on.
    ///
    /// Not by force: a controller that is killed has forgotten the jobs of the last seconds when it
    /// comes back, and ends them.
    pub fn halt(&mut self) -> io::Result<()> {
        self.order("halt", "")
    }

    /// Starts the controller again.
    pub fn go(&mut self) -> io::Result<()> {
        self.order("go", "")
    }

    fn order(&mut self, order: &str, node: &str) -> io::Result<()> {
        let input = self.input.as_mut().ok_or_else(|| io::Error::other("it is stopped"))?;
        writeln!(input, "{order} {node}")?;
        self.hear("done")
    }

    fn hear(&mut self, word: &str) -> io::Result<()> {
        let mut said = String::new();
        self.output.read_line(&mut said)?;
        if said.trim() == word {
            return Ok(());
        }
        drop(self.input.take());
        let mut words = String::new();
        if let Some(mut complaints) = self.keeper.stderr.take() {
            io::Read::read_to_string(&mut complaints, &mut words)?;
        }
        Err(io::Error::other(format!("no private Slurm: {said}{words}")))
    }
}

impl Drop for PrivateSlurm {
    fn drop(&mut self) {
        drop(self.input.take());
        // Nothing can be done about a process that cannot be waited for.
        let _ = self.keeper.wait();
    }
}

/// Each daemon on a port of its own; all are held until all are known.
fn settings(folder: &Path) -> io::Result<String> {
    let ports = (0..=NODES).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let ports = ports.collect::<io::Result<Vec<TcpListener>>>()?;
    let ports = ports.iter().map(|port| Ok(port.local_addr()?.port()));
    let ports = ports.collect::<io::Result<Vec<u16>>>()?;
    let (folder, controller) = (folder.display(), ports[0]);
    let said = |program: &str, arg: &str| {
        let mut command = Command::new(program);
        command.arg(arg);
        run(command).map(|said| said.trim().to_owned())
    };
    let (host, user) = (said("hostname", "-s")?, said("id", "-un")?);
    let nodes = ports[1..].iter().enumerate().map(|(n, port)| {
        let name = n + 1;
        format!("NodeName=n{name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=2000\n")
    });
    let nodes: String = nodes.collect();
    // No cgroups, no accounting; a scheduler that looks every second and not every minute.
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
         MessageTimeout=5\n\
         {nodes}\
         PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
    ))
}
