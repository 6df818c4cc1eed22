//! The identity of a process, and whether that process has certainly ended.
//!
//! A process id alone identifies nothing: ids are reused, and each container has its own. An identity
//! adds the start time and all that must be equal for this process to see the other one: the boot,
//! the host name (clones of a virtual machine have the boot id of the original), the namespaces and
//! the user. If anything differs or cannot be read, the state is [`ProcessState::Unknown`].

use std::fmt;
use std::fs::{read_link, read_to_string};
use std::str::FromStr;

use rustix::io::Errno;
use rustix::process::{Pid, getuid, test_kill_process};

use crate::orphan_reaper::is_marked;
use crate::process_stat::ProcessStat;
use crate::signal::to_pid;

/// Identifies one process. Its text form is for a store that processes of several hosts share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// Equal for all processes that can see each other.
    host: String,
    pid: u32,
    /// Ticks between the boot and the start of the process.
    start_time: u64,
    inherited: Inherited,
}

/// What this process knows about another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    /// It exists.
    Running,
    /// It has ended; processes that it started through its [`crate::OrphanReaper`] are being killed.
    ChildrenEnding,
    /// It has ended, and so have all processes that its reaper can find.
    Ended,
    /// It ran on another host, in another container, or as another user; or the system reports too
    /// little.
    Unknown,
}

impl ProcessIdentity {
    /// The identity of this process, if the system reports all of it (Linux).
    pub fn current() -> Option<Self> {
        let pid = std::process::id();
        let host = host(pid)?;
        let start_time = ProcessStat::own()?.start_time;
        Some(Self { host, pid, start_time, inherited: Inherited::of(pid)? })
    }

    /// Whether the process exists, seen from this process.
    pub fn state(&self) -> ProcessState {
        let (own_host, pid) = (host(std::process::id()), to_pid(self.pid));
        let (Some(_), Some(pid)) = (own_host.filter(|own| *own == self.host), pid) else {
            return ProcessState::Unknown;
        };
        match self.has_ended(pid) {
            false => ProcessState::Running,
            true => match is_marked(&mark_prefix(self.pid, self.start_time), |pid| self.may_be_orphan(pid)) {
                Some(true) => ProcessState::ChildrenEnding,
                Some(false) => ProcessState::Ended,
                None => ProcessState::Unknown,
            },
        }
    }

    /// Whether this may be a child that it left. Asked about processes of other users, as of `sudo`: their environment
    /// cannot be read.
    fn may_be_orphan(&self, pid: Pid) -> bool {
        let pid = pid.as_raw_nonzero().get().unsigned_abs();
        ProcessStat::of(pid).is_some_and(|stat| {
            stat.start_time >= self.start_time
                && Inherited::of(pid).is_none_or(|theirs| self.inherited.may_hand_on(&theirs))
                // Adopted: by the first process, or by another one that this process cannot have started.
                && (stat.parent == 1 || Inherited::of(stat.parent).is_some_and(|theirs| !self.inherited.encloses(&theirs)))
        })
    }

    fn has_ended(&self, pid: Pid) -> bool {
        if test_kill_process(pid) == Err(Errno::SRCH) {
            return true;
        }
        // Without a readable `stat` the process may exist: it counts as running.
        ProcessStat::of(self.pid).is_some_and(|stat| stat.start_time != self.start_time || stat.has_ended())
    }
}

impl fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inherited { no_new_privs, control_groups } = &self.inherited;
        write!(f, "{} {} {}\t{}", self.pid, self.start_time, self.host, u8::from(*no_new_privs))?;
        control_groups.iter().try_for_each(|group| write!(f, "\t{group}"))
    }
}

/// What a process hands on to its children, and what these cannot leave without help from root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Inherited {
    /// Whether programs of another user (setuid) run as this user.
    no_new_privs: bool,
    /// Its control groups but the roots, as `/proc/PID/cgroup` reports them: `0::/system.slice/worker.service`.
    control_groups: Vec<String>,
}

impl Inherited {
    /// Of a process, if the system reports it.
    fn of(pid: u32) -> Option<Self> {
        let read = |name: &str| read_to_string(format!("/proc/{pid}/{name}")).ok();
        Some(Self::parse(&read("status")?, &read("cgroup")?))
    }

    fn parse(status: &str, control_groups: &str) -> Self {
        let no_new_privs = status.lines().any(|line| line.split_whitespace().eq(["NoNewPrivs:", "1"]));
        // A tab would be taken for the end of the name in the text of an identity.
        let below_root = control_groups.lines().filter(|line| !line.ends_with(":/") && !line.contains('\t'));
        Self { no_new_privs, control_groups: below_root.map(str::to_owned).collect() }
    }

    /// Whether a child may have `theirs`.
    fn may_hand_on(&self, theirs: &Self) -> bool {
        (theirs.no_new_privs || !self.no_new_privs) && self.encloses(theirs)
    }

    /// Whether `theirs` are these control groups, or groups below them.
    fn encloses(&self, theirs: &Self) -> bool {
        let is_within = |theirs: &str, own: &str| {
            theirs.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let contains = |own: &String| theirs.control_groups.iter().any(|theirs| is_within(theirs, own));
        self.control_groups.iter().all(contains)
    }
}

/// The text is not an identity that this version writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidIdentity;

impl FromStr for ProcessIdentity {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        let (text, inherited) = text.split_once('\t').ok_or(InvalidIdentity)?;
        let mut inherited = inherited.split('\t');
        let no_new_privs = inherited.next() == Some("1");
        let mut parts = text.splitn(3, ' ');
        let mut next = || parts.next().ok_or(InvalidIdentity);
        let (pid, start_time, host) = (next()?, next()?, next()?);
        Ok(Self {
            inherited: Inherited { no_new_privs, control_groups: inherited.map(str::to_owned).collect() },
            host: host.to_owned(),
            pid: pid.parse().map_err(|_| InvalidIdentity)?,
            start_time: start_time.parse().map_err(|_| InvalidIdentity)?,
        })
    }
}

/// How the mark of a process's [`crate::OrphanReaper`] begins.
pub(crate) fn mark_prefix(pid: u32, start_time: u64) -> String {
    format!("{pid:x}-{start_time:x}-")
}

/// [`mark_prefix`] of this process.
pub(crate) fn own_mark_prefix() -> String {
    let pid = std::process::id();
    mark_prefix(pid, ProcessStat::of(pid).map_or(0, |stat| stat.start_time))
}

/// Everything that must be equal for two processes to see each other. `pid` is the id of this
/// process.
fn host(pid: u32) -> Option<String> {
    if !proc_shows_all(pid)? {
        return None;
    }
    let boot = read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let namespace = |kind: &str| Some(read_link(format!("/proc/self/ns/{kind}")).ok()?.display().to_string());
    let (pids, users) = (namespace("pid")?, namespace("user")?);
    // Start times are relative to the time namespace. Linux before 5.6 has none.
    let times = namespace("time").unwrap_or_default();
    Some(format!("{} {pids} {users} {times} {} {name}", boot.trim(), getuid().as_raw()))
}

/// Whether `/proc` belongs to the PID namespace of this process and hides no process.
fn proc_shows_all(pid: u32) -> Option<bool> {
    let status = read_to_string("/proc/self/status").ok()?;
    shows_all(pid, &status, &read_to_string("/proc/self/mountinfo").ok()?)
}

fn shows_all(pid: u32, status: &str, mounts: &str) -> Option<bool> {
    // One id per namespace, from that of `/proc` to that of the process.
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    Some(ids.trim() == pid.to_string() && !mounts.contains("hidepid="))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// An identity of a child process of this one.
    fn identity_of(pid: u32) -> ProcessIdentity {
        let start_time = ProcessStat::of(pid).unwrap().start_time;
        ProcessIdentity { pid, start_time, ..ProcessIdentity::current().unwrap() }
    }

    #[test]
    fn a_running_process_is_recognised_by_its_text() {
        let identity = ProcessIdentity::current().unwrap();
        let read: ProcessIdentity = identity.to_string().parse().unwrap();
        assert_eq!((&read, read.state()), (&identity, ProcessState::Running));
        assert_eq!("12 x host".parse::<ProcessIdentity>(), Err(InvalidIdentity));
    }

    #[test]
    fn a_process_has_ended_before_its_parent_reaps_it_and_after() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let identity = identity_of(child.id());
        assert_eq!(identity.state(), ProcessState::Running);
        child.kill().unwrap();
        while identity.state() == ProcessState::Running {
            std::thread::yield_now();
        }
        assert_eq!(identity.state(), ProcessState::Ended, "a zombie");
        child.wait().unwrap();
        assert_eq!(identity.state(), ProcessState::Ended);
    }

    #[test]
    fn a_process_with_a_reused_id_is_another_process() {
        let current = ProcessIdentity::current().unwrap();
        let earlier = ProcessIdentity { start_time: current.start_time - 1, ..current };
        assert_eq!(earlier.state(), ProcessState::Ended);
    }

    #[test]
    fn the_state_of_a_process_of_another_host_is_unknown() {
        let current = ProcessIdentity::current().unwrap();
        let elsewhere = ProcessIdentity { host: format!("{}x", current.host), ..current };
        assert_eq!(elsewhere.state(), ProcessState::Unknown);
    }

    #[test]
    fn a_process_of_another_boot_host_namespace_or_user_is_in_doubt() {
        let current = ProcessIdentity::current().unwrap();
        let read = |path: &str| read_to_string(path).unwrap().trim().to_owned();
        let link = |kind: &str| read_link(format!("/proc/self/ns/{kind}")).unwrap().display().to_string();
        let user = format!(" {} ", getuid().as_raw());
        let name = format!(" {}", read("/proc/sys/kernel/hostname"));
        for part in
            [read("/proc/sys/kernel/random/boot_id"), link("pid"), link("user"), link("time"), user, name]
        {
            assert!(current.host.contains(&part), "{part} is not in {}", current.host);
            let host = current.host.replacen(&part, " other ", 1);
            let elsewhere = ProcessIdentity { host, ..current.clone() };
            assert_eq!(elsewhere.state(), ProcessState::Unknown, "{part}");
        }
    }

    #[test]
    fn a_proc_that_hides_processes_or_is_of_another_namespace_identifies_nothing() {
        let mounts = |options: &str| format!("22 1 0:5 / /proc rw,nosuid - proc proc rw{options}\n");
        let status = |ids: &str| format!("Name:\ta\nNSpid:\t{ids}\nThreads:\t1\n");
        assert_eq!(shows_all(7, &status("7"), &mounts("")), Some(true));
        assert_eq!(shows_all(7, &status("7"), &mounts(",hidepid=2")), Some(false));
        assert_eq!(shows_all(7, &status("4711\t7"), &mounts("")), Some(false), "of the outer namespace");
        assert_eq!(shows_all(7, "Name:\ta\n", &mounts("")), None);
    }

    #[test]
    fn marked_children_delay_the_end() {
        let mut parent = Command::new("sleep").arg("600").spawn().unwrap();
        let identity = identity_of(parent.id());
        let mark = format!("{}0", mark_prefix(identity.pid, identity.start_time));
        let mut child = Command::new("sleep").arg("600").env("LONGSHORE_REAPER", &mark).spawn().unwrap();
        // The reaper is found by its argument; it has no mark in its environment.
        let mut reaper = Command::new("sh");
        reaper.args(["-c", "read line", "reaper", &mark]).stdin(std::process::Stdio::piped());
        let mut reaper = reaper.spawn().unwrap();
        parent.kill().unwrap();
        parent.wait().unwrap();
        for process in [&mut child, &mut reaper] {
            assert_eq!(identity.state(), ProcessState::ChildrenEnding);
            process.kill().unwrap();
            process.wait().unwrap();
        }
        assert_eq!(identity.state(), ProcessState::Ended);
    }

    #[test]
    fn a_process_that_did_not_inherit_what_it_must_have_is_no_child() {
        let of = |no_new_privs: u8, groups: &str| {
            Inherited::parse(&format!("Name:\ta\nNoNewPrivs:\t{no_new_privs}\n"), groups)
        };
        let worker = of(0, "4:memory:/w\n0::/system.slice/worker.service\n1:cpu:/\n");
        for (groups, may) in [
            ("0::/system.slice/worker.service\n4:memory:/w\n1:cpu:/\n", true),
            ("0::/system.slice/worker.service/unit\n4:memory:/w\n1:cpu:/x\n", true),
            ("0::/system.slice/worker.service2\n4:memory:/w\n1:cpu:/\n", false),
            ("0::/system.slice/worker.service\n4:memory:/\n1:cpu:/\n", false),
            ("0::/user.slice/session-3.scope\n4:memory:/w\n1:cpu:/\n", false),
        ] {
            assert_eq!(worker.may_hand_on(&of(0, groups)), may, "{groups}");
        }
        assert!(of(0, "0::/\n").may_hand_on(&of(1, "0::/x\n")), "in a container all groups may be its own");
        assert!(!of(1, "0::/\n").may_hand_on(&of(0, "0::/\n")), "the bit is never lost");
    }

    #[test]
    fn the_text_of_an_identity_keeps_all_of_it() {
        let control_groups = vec!["0::/a b".to_owned(), "4:memory:/w".to_owned()];
        let identity = ProcessIdentity {
            inherited: Inherited { no_new_privs: true, control_groups },
            ..ProcessIdentity::current().unwrap()
        };
        assert_eq!(identity.to_string().parse(), Ok(identity));
    }
}
