//! A base system whose commands hang: whoever asks the pool is answered all the same.

use std::os::unix::fs::PermissionsExt;

use super::base::Base;
use super::kit::{LONG, Pool};
use crate::support::{Place, eventually};

/// Slurm whose `sbatch` does not return until a file is there, and then refuses.
struct Silent(Place);

impl Silent {
    fn start() -> Self {
        let place = Place::new();
        let wait = "until [ -e \"$(dirname \"$0\")/go\" ]; do sleep 0.05; done";
        let script = format!("#!/bin/bash\n{wait}\necho 'sbatch: error: closed' >&2\nexit 1\n");
        let path = place.write("sbatch", &script);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self(place)
    }
}

impl Base for Silent {
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
    let silent = Silent::start();
    let go = silent.0.path("go");
    let pool = Pool::prepare(Box::new(silent), &["--workers", "1", "--wait-limit", "1s"]);
    pool.start_server().ends(1).says("the pool continues");
    let asked = eventually(LONG, || {
        let explained = pool.run(&["dispatch", "explain", "--json"]).ok().json();
        let seconds = explained["asking"]["seconds"].as_u64();
        seconds.filter(|seconds| *seconds >= 2).map(|_| explained)
    });
    assert_eq!((&asked["wanted"], &asked["here"]), (&1.into(), &0.into()), "{asked}");
    for command in ["status", "explain"] {
        let said = pool.run(&["dispatch", command]).ok().out;
        assert!(said.contains("the base system was asked for a worker"), "{said}");
    }
    pool.run(&["dispatch", "scale", "2"]).ok();
    assert_eq!(pool.status()["size"], serde_json::json!([2, 2]));
    std::fs::write(go, "").unwrap();
    let explained = eventually(LONG, || {
        let said = pool.run(&["dispatch", "explain", "--json"]).ok().json();
        said["trouble"].is_string().then_some(said)
    });
    assert!(explained["trouble"].as_str().unwrap().contains("closed"), "{explained}");
    pool.stop();
}
