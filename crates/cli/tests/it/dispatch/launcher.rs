//! The launchers that start a pool's workers: the same cases run on each.

use std::process::Command;

/// A system that starts workers.
pub trait TestLauncher {
    /// Its name for `--qsys`.
    fn qsys(&self) -> &'static str;

    /// The environment variables by which its commands find it.
    fn env(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Cancels a job, as the user or the site would.
    fn cancel(&self, job: &str);
}

/// This machine: a job is a process group, identified as `PID@START`.
pub struct LocalLauncher;

impl TestLauncher for LocalLauncher {
    fn qsys(&self) -> &'static str {
        "local_worker"
    }

    fn cancel(&self, job: &str) {
        let (leader, _) = job.split_once('@').unwrap();
        let group = format!("-{leader}");
        assert!(Command::new("kill").args(["-KILL", "--", &group]).status().unwrap().success());
    }
}
