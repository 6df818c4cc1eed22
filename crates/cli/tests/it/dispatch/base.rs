//! What starts the workers of a pool: the same cases are run over every one of them.

use std::process::Command;

/// A system that starts workers.
pub trait Base {
    /// What `--qsys` calls it.
    fn qsys(&self) -> &'static str;

    /// Variables by which its commands find it.
    fn env(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Takes a job away, as the user or the site would.
    fn cancel(&self, job: &str);
}

/// This machine: a job is a process group, known as `PID@START`.
pub struct Local;

impl Base for Local {
    fn qsys(&self) -> &'static str {
        "local_worker"
    }

    fn cancel(&self, job: &str) {
        let (leader, _) = job.split_once('@').unwrap();
        let group = format!("-{leader}");
        assert!(Command::new("kill").args(["-KILL", "--", &group]).status().unwrap().success());
    }
}
