//! A launcher with commands that hang: the pool still answers its clients.

use std::os::unix::fs::PermissionsExt;

use super::fixture::{POOL_TIMEOUT, PoolFixture};
use super::launcher::TestLauncher;
use crate::support::{TestDir, eventually};

/// A Slurm with an `sbatch` that does not return until a file exists, and then fails.
struct HangingSlurm(TestDir);

impl HangingSlurm {
    fn start() -> Self {
        let dir = TestDir::new();
        let wait = "until [ -e \"$(dirname \"$0\")/go\" ]; do sleep 0.05; done";
        let script = format!("#!/bin/bash\n{wait}\necho 'sbatch: error: closed' >&2\nexit 1\n");
        let path = dir.write("sbatch", &script);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self(dir)
    }
}

impl TestLauncher for HangingSlurm {
    fn qsys(&self) -> &'static str {
        "slurm_worker"
    }

    fn env(&self) -> Vec<(String, String)> {
        let path = std::env::var("PATH").unwrap();
        vec![("PATH".to_owned(), format!("{}:{path}", self.0.path("").display()))]
    }

    fn cancel(&self, _job: &str) {}
}

#[test]
fn a_pool_answers_while_its_base_system_does_not() {
    let slurm = HangingSlurm::start();
    let go = slurm.0.path("go");
    let pool = PoolFixture::prepare(Box::new(slurm), &["--workers", "1", "--wait-limit", "1s"]);
    pool.start_server().ends(1).says("the pool continues");
    let asked = eventually(POOL_TIMEOUT, || {
        let explained = pool.run(&["dispatch", "explain", "--json"]).ok().json();
        let seconds = explained["asking"]["seconds"].as_u64();
        seconds.filter(|seconds| *seconds >= 2).map(|_| explained)
    });
    assert_eq!((&asked["wanted"], &asked["here"]), (&1.into(), &0.into()), "{asked}");
    for command in ["status", "explain"] {
        let output = pool.run(&["dispatch", command]).ok().out;
        assert!(output.contains("the base system was asked for a worker"), "{output}");
    }
    pool.run(&["dispatch", "scale", "2"]).ok();
    assert_eq!(pool.status()["size"], serde_json::json!([2, 2]));
    std::fs::write(go, "").unwrap();
    let explained = eventually(POOL_TIMEOUT, || {
        let output = pool.run(&["dispatch", "explain", "--json"]).ok().json();
        output["trouble"].is_string().then_some(output)
    });
    assert!(explained["trouble"].as_str().unwrap().contains("closed"), "{explained}");
    pool.stop();
}
