//! A private Grid Engine: a cell in a temporary folder, one host, six slots.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use super::process_guard::ProcessGuard;
use super::{free_ports, os_user, program, run};

const PACKAGES: &str = "gridengine-master, gridengine-exec and gridengine-client";

/// Writes the cell that Debian's package writes for the whole machine, with classic spooling and without
/// an admin user; then adds one host, one queue and one parallel environment.
const GUARD_SCRIPT: &str = r#"host=$(hostname) user=$(id -un) lib=/usr/lib/gridengine share=/usr/share/gridengine
common=$folder/default/common spool=$folder/spool
export SGE_ROOT=$folder SGE_CELL=default SGE_QMASTER_PORT=$1 SGE_EXECD_PORT=$2
start() { SGE_ND=1 "$1" </dev/null >>"$folder/log/main" 2>&1 & }
master() { start sge_qmaster; master=$!; within qconf -sh; }
obey() {
  case $1 in
    halt) kill -9 "$master"; wait "$master" ;;
    go) master ;;
  esac
}
prepare() {
  for part in bin lib util utilbin; do ln -s "/var/lib/gridengine/$part" "$folder/$part"; done
  mkdir -p "$common" "$spool/qmaster/job_scripts" "$spool/execd"
  # Grid Engine needs one name for the host, also where 127.0.0.1 resolves to localhost.
  echo "$host" >"$common/act_qmaster"
  echo "$host localhost" >"$common/host_aliases"
  sed -e "s#^admin_user .*#admin_user none#" -e "s#^spooling_method .*#spooling_method classic#" \
    -e "s#^spooling_lib .*#spooling_lib libspoolc#" -e "s#^spooling_params .*#spooling_params $common;$spool/qmaster#" \
    -e "s#^qmaster_spool_dir .*#qmaster_spool_dir $spool/qmaster#" \
    /var/lib/gridengine/default/common/bootstrap >"$common/bootstrap"
  # All users may submit, also root. Accounting is written immediately. Hosts report every two seconds,
  # so they soon find a restarted master.
  sed -e "s#^execd_spool_dir.*#execd_spool_dir $spool/execd#" -e 's/^min_\(.id\) .*/min_\1 0/' \
    -e 's/^load_report_time .*/load_report_time 00:00:02/' -e 's/flush_time=[0-9:]*/flush_time=00:00:01 accounting_flush_time=00:00:00/' \
    "$share/default-configuration" >"$folder/global"
  "$lib/spoolinit" classic libspoolc "$common;$spool/qmaster" init
  "$lib/spooldefaults" configuration "$folder/global"
  "$lib/spooldefaults" complexes "$share/util/resources/centry"
  "$lib/spooldefaults" usersets "$share/util/resources/usersets"
  "$lib/spooldefaults" managers "$user"
}
furnish() {
  qconf -as "$host"
  printf 'group_name @allhosts\nhostlist %s\n' "$host" >"$folder/group"
  qconf -Ahgrp "$folder/group"
  printf '%s\n' 'pe_name smp' 'slots 999' 'user_lists NONE' 'xuser_lists NONE' 'start_proc_args NONE' \
    'stop_proc_args NONE' 'allocation_rule $pe_slots' 'control_slaves FALSE' 'job_is_first_task TRUE' \
    'urgency_slots min' 'accounting_summary FALSE' 'qsort_args NONE' >"$folder/smp"
  qconf -Ap "$folder/smp"
  qconf -sq | sed -e 's/^qname .*/qname main.q/' -e 's/^hostlist .*/hostlist @allhosts/' -e 's/^slots .*/slots 6/' \
    -e 's/^pe_list .*/pe_list smp/' -e 's#^shell .*#shell \/bin\/bash#' -e 's/^load_thresholds .*/load_thresholds NONE/' \
    -e 's/^shell_start_mode .*/shell_start_mode unix_behavior/' -e 's/^notify .*/notify 00:00:02/' >"$folder/queue"
  qconf -Aq "$folder/queue"
  # The scheduler runs every second instead of every 15 seconds.
  qconf -ssconf | sed -e 's/^schedule_interval .*/schedule_interval 0:0:1/' -e 's/^flush_submit_sec .*/flush_submit_sec 1/' \
    -e 's/^flush_finish_sec .*/flush_finish_sec 1/' >"$folder/scheduler"
  qconf -Msconf "$folder/scheduler"
}
reports() { qhost | awk -v host="${host%%.*}" '$1 == host && $4 != "-" { found = 1 } END { exit !found }'; }
prepare >>"$folder/log/main" 2>&1
master
furnish >>"$folder/log/main" 2>&1
start sge_execd
within reports
ready obey"#;

/// A Grid Engine for one test, over TCP on loopback. Dropping it stops and removes it and its jobs. Needs
/// root, because its execution daemon does.
///
/// It neither uses nor changes a cell of the machine.
#[derive(Debug)]
pub struct PrivateGridEngine {
    guard: ProcessGuard,
    ports: Vec<u16>,
}

impl PrivateGridEngine {
    /// Starts a Grid Engine; takes two to three seconds.
    pub fn start() -> io::Result<Self> {
        if !os_user::is_root() {
            return Err(io::Error::other("a private Grid Engine needs root: its daemons do"));
        }
        let folders = [PathBuf::from("/usr/sbin")];
        for name in ["sge_qmaster", "sge_execd", "qconf"] {
            program(name, &folders, PACKAGES)?;
        }
        let ports = free_ports(2)?;
        let args: Vec<String> = ports.iter().map(u16::to_string).collect();
        let guard = ProcessGuard::start(ProcessGuard::folder("gridengine")?, GUARD_SCRIPT, &args)?;
        Ok(Self { guard, ports })
    }

    /// The environment variables by which Grid Engine's commands find it.
    pub fn env(&self) -> [(&'static str, String); 4] {
        [
            ("SGE_ROOT", self.guard.path().display().to_string()),
            ("SGE_CELL", "default".to_owned()),
            ("SGE_QMASTER_PORT", self.ports[0].to_string()),
            ("SGE_EXECD_PORT", self.ports[1].to_string()),
        ]
    }

    /// Runs a command of Grid Engine and returns its output.
    pub fn run(&self, program: &str, args: &[&str]) -> io::Result<String> {
        let mut command = Command::new(program);
        command.args(args).envs(self.env());
        run(command)
    }

    /// Kills the master. Jobs keep running.
    pub fn halt(&mut self) -> io::Result<()> {
        self.guard.send("halt")
    }

    /// Starts the master again.
    pub fn go(&mut self) -> io::Result<()> {
        self.guard.send("go")
    }
}
