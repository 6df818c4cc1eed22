//! A test directory with a store, and the binary run in it.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A fresh directory that is removed after the test.
pub struct TestDir {
    root: tempfile::TempDir,
}

/// The exit code and output of the binary.
pub struct CliOutput {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl TestDir {
    pub fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        if name.ends_with(".toml") {
            // A configuration with a secret is for its owner only.
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        }
        path
    }

    /// Whether the test runs as root, by the owner of its directory.
    pub fn is_root(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(self.root.path()).unwrap().uid() == 0
    }

    /// Changes the owner of the directory and of the files in it.
    pub fn give_to(&self, uid: u32) {
        let files = std::fs::read_dir(self.root.path()).unwrap().map(|file| file.unwrap().path());
        for path in files.chain([self.root.path().to_owned()]) {
            std::os::unix::fs::chown(path, Some(uid), Some(uid)).unwrap();
        }
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The binary in this directory, with the store `longshore.db` there.
    pub fn command(&self, args: &[&str]) -> Command {
        self.program(Path::new(env!("CARGO_BIN_EXE_longshore")), args)
    }

    /// A build of the binary in this directory.
    pub fn program(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("LONGSHORE_") || text.starts_with("OTEL_") || text == "TRACEPARENT" {
                command.env_remove(name);
            }
        }
        command.args(args).current_dir(self.root.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn run(&self, args: &[&str]) -> CliOutput {
        CliOutput::of(self.command(args).spawn().unwrap())
    }

    /// Runs with input; the binary may stop reading early.
    pub fn run_with(&self, args: &[&str], input: impl AsRef<[u8]>) -> CliOutput {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let input = input.as_ref().to_vec();
        let feed = std::thread::spawn(move || _ = pipe.write_all(&input));
        let run = CliOutput::of(child);
        feed.join().unwrap();
        run
    }

    pub fn start(&self, args: &[&str]) -> ChildGuard {
        self.start_with(args, |_| {})
    }

    /// Starts the binary with a change to its command.
    pub fn start_with(&self, args: &[&str], change: impl FnOnce(&mut Command)) -> ChildGuard {
        self.spawn(self.command(args), change)
    }

    pub fn start_program(&self, program: &Path, args: &[&str]) -> ChildGuard {
        self.spawn(self.program(program, args), |_| {})
    }

    fn spawn(&self, mut command: Command, change: impl FnOnce(&mut Command)) -> ChildGuard {
        let err = std::fs::File::options().create(true).append(true).open(self.path("stderr"));
        command.stdout(Stdio::null()).stderr(err.unwrap());
        change(&mut command);
        ChildGuard(command.spawn().unwrap())
    }

    /// Sends a unit of kind `exec` that runs a shell script.
    pub fn submit_script(&self, script: &str, more: &[&str]) -> String {
        let payload = serde_json::json!({ "argv": ["sh", "-c", script] }).to_string();
        let args = [&["submit", "exec", &payload], more].concat();
        self.run(&args).ok().out.trim().to_owned()
    }

    /// Runs a worker until idle.
    pub fn work(&self) -> CliOutput {
        self.run(&["worker", "--slots", "4", "--until-idle"]).ok()
    }

    pub fn unit(&self, id: &str) -> Value {
        self.run(&["unit", "show", id, "--json"]).ok().json()
    }

    pub fn batch(&self, name: &str) -> Value {
        self.run(&["batch", "status", name, "--json"]).ok().json()
    }

    /// Units of the default queue in this state, as listed.
    pub fn units(&self, state: &str) -> Vec<Value> {
        let args = ["unit", "list", "--queue", "default", "--state", state];
        let more = ["--limit", "10000", "--json"];
        self.run(&[&args[..], &more].concat()).ok().json().as_array().unwrap().clone()
    }

    /// Whether this pid runs this script in this directory. A test must check this before it kills by
    /// pid: the kernel reuses pids for other processes.
    pub fn is_running(&self, script: &str, pid: &str) -> bool {
        let process = Path::new("/proc").join(pid);
        let words = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let here = std::fs::read_link(process.join("cwd")).ok();
        words.split(|byte| *byte == 0).any(|word| word == script.as_bytes())
            && here == self.root.path().canonicalize().ok()
            && is_alive(pid)
    }

    pub fn queue(&self) -> Value {
        self.run(&["queue", "show", "default", "--json"]).ok().json()[0].clone()
    }
}

impl CliOutput {
    /// Waits for the child's end; kills it after [`MAX_RUN_TIME`], so that no test hangs.
    pub fn of(child: Child) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let (ended, end) = mpsc::channel::<()>();
        let pid = child.id();
        let watchdog = std::thread::spawn(move || {
            if end.recv_timeout(stretch(MAX_RUN_TIME)) == Err(mpsc::RecvTimeoutError::Timeout) {
                signal(pid, "KILL");
                // Also kill its group, if it leads one: a process that holds the pipes would block
                // the wait.
                let group = format!("-{pid}");
                let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            }
        });
        let output = child.wait_with_output().unwrap();
        drop(ended);
        watchdog.join().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let code = output.status.code();
        let code = code.unwrap_or_else(|| -output.status.signal().unwrap());
        Self { code, out: text(output.stdout), err: text(output.stderr) }
    }

    /// Asserts exit code 0.
    pub fn ok(self) -> Self {
        self.ends(0)
    }

    #[track_caller]
    pub fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    /// Asserts that stderr contains these words.
    #[track_caller]
    pub fn says(self, words: &str) -> Self {
        assert!(self.err.contains(words), "no `{words}` in: {}", self.err);
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}

/// A child process that is killed on drop.
pub struct ChildGuard(pub Child);

impl ChildGuard {
    pub fn signal(&self, name: &str) {
        assert!(signal(self.0.id(), name));
    }

    /// Waits for the exit code, or minus the signal that ended the process.
    pub fn ends_within(&mut self, limit: Duration) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let status = eventually(limit, || self.0.try_wait().unwrap());
        status.code().unwrap_or_else(|| -status.signal().unwrap())
    }

    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        self.kill();
    }
}

pub fn signal(pid: u32, name: &str) -> bool {
    let args = [format!("-{name}"), pid.to_string()];
    Command::new("kill").args(args).status().unwrap().success()
}

/// Polls until there is a value; fails after `stretch`.
#[track_caller]
pub fn eventually<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < until, "condition not reached within {limit:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process exists and is not a zombie.
pub fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("Z").starts_with('Z'))
}

/// The peak memory of a process, in bytes.
pub fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// The large number in a soak (`./test --soak`), the small one otherwise.
pub fn pick_size<T>(small: T, large: T) -> T {
    if std::env::var_os("LONGSHORE_SOAK").is_some() { large } else { small }
}

/// A timeout that is ten times longer in a soak.
pub fn stretch(small: Duration) -> Duration {
    pick_size(small, small * 10)
}

/// The timeout for an operation that takes a moment on an idle machine.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest that one run of the binary may take.
const MAX_RUN_TIME: Duration = Duration::from_secs(180);
