//! What a pool on Slurm is not told, or too late: the id of a job that was submitted, the end of a
//! job's time.

use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;

use super::bases::{Cluster, Shared, Slurm};
use crate::dispatch::base::Base;
use crate::dispatch::kit::{LONG, Pool};
use crate::support::{Place, eventually, limit};

/// Slurm whose `sbatch` kills the server once it has submitted its job, and says nothing: the job is
/// held, so that its worker cannot come by itself.
struct Murderous {
    slurm: Rc<Slurm>,
    bin: Place,
}

impl Murderous {
    fn start(slurm: &Rc<Slurm>) -> Self {
        let bin = Place::new();
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

impl Base for Murderous {
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
    let slurm = Rc::new(Slurm::start());
    let base = Murderous::start(&slurm);
    let job = base.bin.path("job");
    let args = ["--workers", "1", "--nthr", "1", "--wait-limit", "5s"];
    let pool = Pool::prepare(Box::new(base), &args);
    pool.start_server().ends(1).says("the server ended at once");
    let job = std::fs::read_to_string(job).unwrap().trim().to_owned();
    assert_eq!(slurm.jobs(), [job.clone()].into());
    pool.start_server().ends(1).says("not all workers were connected");
    assert_eq!((pool.jobs(), slurm.jobs()), (vec![job.clone()], [job.clone()].into()));
    slurm.run("scontrol", &["release", &job]);
    pool.until_workers(1);
    assert_eq!(pool.wait_for("job.sh", "true", &[]).0, 0);
    pool.stop();
    eventually(limit(LONG), || slurm.jobs().is_empty().then_some(()));
}

/// Slurm looks for jobs whose time is over twice a minute: this takes as long.
#[test]
fn scripts_of_a_job_whose_time_is_over_run_again_and_that_is_not_counted() {
    let slurm = Rc::new(Slurm::start());
    let base = Box::new(Shared(Rc::clone(&slurm)));
    let pool = Pool::start_on(base, &["--workers", "1", "--nthr", "2"]);
    // One loss would be one too many, did it count. One of them does not listen to Slurm's warning.
    let held = "echo >> runs; until [ -e go ]; do sleep 0.1; done";
    let polite = pool.unit("polite.sh", held, &["--crash-limit", "1"]);
    let deaf = format!("trap '' TERM; {held}");
    let deaf = pool.unit("deaf.sh", &deaf, &["--crash-limit", "1"]);
    pool.until_lines("runs", 2);
    let job = pool.jobs()[0].clone();
    slurm.run("scontrol", &["update", &format!("JobId={job}"), "EndTime=now"]);
    let state = || slurm.run("scontrol", &["show", "job", &job]);
    eventually(limit(LONG), || state().contains("JobState=TIMEOUT").then_some(()));
    pool.until_lines("runs", 4);
    pool.place.write("go", "");
    let status = pool.at_rest();
    assert_eq!((&status["done"], &status["failed"]), (&2.into(), &0.into()));
    for unit in [polite, deaf] {
        let shown = pool.run_on_store(&["unit", "show", &unit, "--json"]).ok().json();
        assert_eq!(shown["lost"], 0, "{shown}");
    }
    pool.stop();
}
