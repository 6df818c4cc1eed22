//! A pool for one test, and checks of what it leaves behind.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::launcher::{LocalLauncher, TestLauncher};
use crate::support::{CliOutput, TIMEOUT, TestDir, eventually, is_alive, stretch};

/// Longer than any operation of a pool takes in a test.
pub const POOL_TIMEOUT: Duration = Duration::from_secs(80);
/// A worker that is silent for this long is lost. No shorter: on a loaded machine workers are silent,
/// too.
pub const WORKER_TTL: &str = "8s";

/// A pool in its own directory. Its owner is the test process, so it ends with that.
pub struct PoolFixture {
    pub dir: TestDir,
    pub launcher: Box<dyn TestLauncher>,
    /// The arguments of `dispatch start`.
    start_args: Vec<String>,
}

impl PoolFixture {
    /// Starts a pool on this machine.
    pub fn start(args: &[&str]) -> Self {
        Self::start_on(Box::new(LocalLauncher), args)
    }

    pub fn start_on(launcher: Box<dyn TestLauncher>, args: &[&str]) -> Self {
        let pool = Self::prepare(launcher, args);
        pool.start_server().ok();
        pool
    }

    /// A pool without a started server.
    pub fn prepare(launcher: Box<dyn TestLauncher>, args: &[&str]) -> Self {
        let args = args.iter().map(ToString::to_string).collect();
        Self { dir: TestDir::new(), launcher, start_args: args }
    }

    /// Starts or restarts the server.
    pub fn start_server(&self) -> CliOutput {
        let args: Vec<&str> = self.start_args.iter().map(String::as_str).collect();
        self.start_with(&args)
    }

    pub fn start_with(&self, args: &[&str]) -> CliOutput {
        let fixed = ["dispatch", "start", "--qsys", self.launcher.qsys(), "--ttl", WORKER_TTL];
        CliOutput::of(self.command(&[&fixed, args].concat()).spawn().unwrap())
    }

    /// The binary, in the pool's directory and for this pool.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.dir.command(args);
        command.env("LONGSHORE_DISPATCH_DIR", self.dir.path("pool")).envs(self.launcher.env());
        // Identifies processes that have no path of this directory in their arguments.
        command.env("PROOF_POOL", self.dir.path(""));
        command
    }

    pub fn run(&self, args: &[&str]) -> CliOutput {
        CliOutput::of(self.command(args).spawn().unwrap())
    }

    /// Writes and submits a script; returns the JSON response.
    pub fn submit(&self, name: &str, text: &str, more: &[&str]) -> Value {
        self.dir.write(name, text);
        self.run(&[&["submit", "--json", "--script", name], more].concat()).ok().json()
    }

    /// Submits a script; returns its unit's id.
    pub fn unit(&self, name: &str, text: &str, more: &[&str]) -> String {
        self.submit(name, text, more)["unit"].as_str().unwrap().to_owned()
    }

    /// Submits a script and waits for its end; returns the exit code of `submit` and the unit's final
    /// view.
    pub fn wait_for(&self, name: &str, text: &str, more: &[&str]) -> (i32, Value) {
        self.dir.write(name, text);
        let run = self.run(&[&["submit", "--wait", "--json", "--script", name], more].concat());
        assert!(!run.out.is_empty(), "{}", run.err);
        (run.code, run.json())
    }

    pub fn status(&self) -> Value {
        self.run(&["dispatch", "status", "--json"]).ok().json()
    }

    /// The pids of its workers, sorted.
    pub fn worker_pids(&self) -> Vec<u32> {
        let status = self.status();
        let workers = status["workers"].as_array().unwrap().iter();
        let pids = workers.map(|worker| u32::try_from(worker["pid"].as_u64().unwrap()).unwrap());
        let mut pids: Vec<u32> = pids.collect();
        pids.sort_unstable();
        pids
    }

    pub fn server_pid(&self) -> u32 {
        u32::try_from(self.status()["pid"].as_u64().unwrap()).unwrap()
    }

    /// The jobs of its workers, by the launcher's ids.
    pub fn job_ids(&self) -> Vec<String> {
        let state: Value = serde_json::from_str(&self.dir.read("pool/state/server.json")).unwrap();
        let jobs = state["jobs"].as_object().unwrap().values();
        jobs.map(|job| job["job"].as_str().unwrap().to_owned()).collect()
    }

    pub fn wait_for_status(&self, what: impl Fn(&Value) -> bool) -> Value {
        eventually(stretch(POOL_TIMEOUT), || Some(self.status()).filter(|status| what(status)))
    }

    /// Waits for this number of workers.
    pub fn wait_for_workers(&self, count: usize) -> Value {
        self.wait_for_status(|status| status["workers"].as_array().unwrap().len() == count)
    }

    /// Waits until no script is left.
    pub fn wait_until_idle(&self) -> Value {
        self.wait_for_status(|status| status["ready"] == 0 && status["later"] == 0 && status["claimed"] == 0)
    }

    /// The lines that scripts have written into a file.
    pub fn lines(&self, name: &str) -> Vec<String> {
        self.dir.read(name).lines().map(str::to_owned).collect()
    }

    pub fn wait_for_lines(&self, name: &str, count: usize) {
        eventually(stretch(POOL_TIMEOUT), || (self.lines(name).len() >= count).then_some(()));
    }

    /// Kills the server with SIGKILL.
    pub fn kill_server(&self) {
        let server = self.server_pid();
        signal(server, "KILL");
        eventually(TIMEOUT, || (!is_alive(&server.to_string())).then_some(()));
    }

    /// Stops the pool and checks that only its store and logs are left.
    pub fn stop(&self) {
        self.run(&["dispatch", "stop"]).ok();
        self.assert_nothing_left();
    }

    pub fn assert_nothing_left(&self) {
        eventually(TIMEOUT, || self.processes().is_empty().then_some(()));
        let files = files(&self.dir.path("pool"));
        let odd = |file: &&String| {
            let state = ["server.json", "launches.json", "allocations.json", ".log"];
            let store = ["units.db", "units.db-wal", "units.db-shm"];
            let known = [&state[..], &store].concat();
            !known.iter().any(|end| file.ends_with(end))
        };
        assert_eq!(files.iter().filter(odd).collect::<Vec<_>>(), Vec::<&String>::new());
        let run = self.run_on_store(&["verify"]);
        run.ok();
    }

    /// Runs a command on the store's file itself.
    pub fn run_on_store(&self, args: &[&str]) -> CliOutput {
        let store = format!("sqlite:{}", self.dir.path("pool/state/units.db").display());
        self.dir.run(&[args, &["--store", &store]].concat())
    }

    /// Every process of this pool, found by its arguments, directory or environment.
    pub fn processes(&self) -> Vec<u32> {
        let here = self.dir.path("").canonicalize().unwrap();
        let here = here.to_str().unwrap().trim_end_matches('/').to_owned();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let ours = |pid: &u32| {
            let process = Path::new("/proc").join(pid.to_string());
            let read = |name: &str| std::fs::read(process.join(name)).unwrap_or_default();
            let has = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(&here);
            let cwd = std::fs::read_link(process.join("cwd")).unwrap_or_default();
            has(&read("cmdline")) || has(&read("environ")) || cwd.starts_with(&here)
        };
        pids.filter(|pid| *pid != std::process::id())
            .filter(ours)
            .filter(|pid| is_alive(&pid.to_string()))
            .collect()
    }
}

impl Drop for PoolFixture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let read = |name: &str| self.dir.read(name);
            eprintln!("--- the server's log:\n{}", read("pool/server.log"));
            for file in files(&self.dir.path("pool/workers")) {
                eprintln!("--- {file}:\n{}", std::fs::read_to_string(&file).unwrap_or_default());
            }
        }
        // A failed test must not leave a pool behind.
        while let left @ [_, ..] = &self.processes()[..] {
            left.iter().for_each(|pid| signal(*pid, "KILL"));
        }
    }
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    let below = |path: std::path::PathBuf| match path.is_dir() {
        true => files(&path),
        false => vec![path.display().to_string()],
    };
    paths.flat_map(below).collect()
}

/// Sends a signal to a process that may have ended.
pub fn signal(pid: u32, name: &str) {
    let mut command = Command::new("kill");
    command.args([&format!("-{name}"), &pid.to_string()]).stderr(Stdio::null());
    let _ = command.status().unwrap();
}

/// How often each line occurs.
pub fn count_lines(lines: &[String]) -> std::collections::BTreeMap<&str, usize> {
    let mut counts = std::collections::BTreeMap::new();
    for line in lines {
        *counts.entry(line.as_str()).or_default() += 1;
    }
    counts
}
