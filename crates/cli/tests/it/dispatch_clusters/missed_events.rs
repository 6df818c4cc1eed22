//! What a pool on Slurm does not learn, or learns too late: the id of a submitted job, the end of a
//! job's time limit.

use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;

use super::schedulers::{Cluster, SharedCluster, SlurmCluster};
use crate::dispatch::fixture::{POOL_TIMEOUT, PoolFixture};
use crate::dispatch::launcher::TestLauncher;
use crate::support::{TestDir, eventually, stretch};

/// A Slurm with an `sbatch` that kills the server after submitting the job, and prints nothing. The job is
/// held, so that its worker cannot register by itself.
struct ServerKillingSlurm {
    slurm: Rc<SlurmCluster>,
    bin: TestDir,
}

impl ServerKillingSlurm {
    fn start(slurm: &Rc<SlurmCluster>) -> Self {
        let bin = TestDir::new();
        let script = "#!/bin/bash
            here=$(dirname \"$0\")
            export PATH=${PATH#*:}
            mv \"$here/armed\" \"$here/fired\" 2>/dev/null || exec sbatch \"$@\"
            sbatch --hold \"$@\" > \"$here/job\"
            kill -KILL $PPID
            exec sleep 5";
        let path = bin.write("sbatch", script);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        bin.write("armed", "");
        Self { slurm: Rc::clone(slurm), bin }
    }
}

impl TestLauncher for ServerKillingSlurm {
    fn qsys(&self) -> &'static str {
        self.slurm.qsys()
    }

    fn env(&self) -> Vec<(String, String)> {
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", self.bin.path("").display());
        self.slurm.env().into_iter().chain([("PATH".to_owned(), path)]).collect()
    }

    fn cancel(&self, job: &str) {
        self.slurm.cancel(job);
    }
}

#[test]
fn a_job_whose_id_a_killed_server_never_heard_is_found_again_and_not_asked_for_twice() {
    let slurm = Rc::new(SlurmCluster::start());
    let launcher = ServerKillingSlurm::start(&slurm);
    let job = launcher.bin.path("job");
    let args = ["--workers", "1", "--nthr", "1", "--wait-limit", "5s"];
    let pool = PoolFixture::prepare(Box::new(launcher), &args);
    pool.start_server().ends(1).says("the server ended at once");
    let job = std::fs::read_to_string(job).unwrap().trim().to_owned();
    assert_eq!(slurm.job_ids(), [job.clone()].into());
    pool.start_server().ends(1).says("not all workers were connected");
    assert_eq!((pool.job_ids(), slurm.job_ids()), (vec![job.clone()], [job.clone()].into()));
    slurm.run("scontrol", &["release", &job]);
    pool.wait_for_workers(1);
    assert_eq!(pool.wait_for("job.sh", "true", &[]).0, 0);
    pool.stop();
    eventually(stretch(POOL_TIMEOUT), || slurm.job_ids().is_empty().then_some(()));
}

/// Slurm checks time limits twice a minute: the test takes that long.
#[test]
fn scripts_of_a_job_whose_time_is_over_run_again_and_that_is_not_counted() {
    let slurm = Rc::new(SlurmCluster::start());
    let launcher = Box::new(SharedCluster(Rc::clone(&slurm)));
    let pool = PoolFixture::start_on(launcher, &["--workers", "1", "--nthr", "2"]);
    // If a loss counted, one would exceed the crash limit. One script ignores Slurm's SIGTERM.
    let held = "echo >> runs; until [ -e go ]; do sleep 0.1; done";
    let polite = pool.unit("polite.sh", held, &["--crash-limit", "1"]);
    let deaf = format!("trap '' TERM; {held}");
    let deaf = pool.unit("deaf.sh", &deaf, &["--crash-limit", "1"]);
    pool.wait_for_lines("runs", 2);
    let job = pool.job_ids()[0].clone();
    slurm.run("scontrol", &["update", &format!("JobId={job}"), "EndTime=now"]);
    let state = || slurm.run("scontrol", &["show", "job", &job]);
    eventually(stretch(POOL_TIMEOUT), || state().contains("JobState=TIMEOUT").then_some(()));
    pool.wait_for_lines("runs", 4);
    pool.dir.write("go", "");
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&2.into(), &0.into()));
    for unit in [polite, deaf] {
        let shown = pool.run_on_store(&["unit", "show", &unit, "--json"]).ok().json();
        assert_eq!(shown["lost"], 0, "{shown}");
    }
    pool.stop();
}
