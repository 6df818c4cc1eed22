//! A batch is bound to the database that it was started with, whatever its `database` names later.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::rc::Rc;

use longshore_sqlite::rusqlite::Connection;
use longshore_testkit::servers::PrivatePostgres;

use crate::batch_job::{BatchJob, ROWS_IN_POSTGRES, SharedPostgres};
use crate::support::{ChildGuard, TIMEOUT, eventually};

const ROWS: u64 = 20;
const STORE: &str = "store = \"sqlite:store.db\"\n[worker]\nttl = \"1s\"\n";

/// A job with its rows where the file `rows.url` says, and the same rows in two databases.
fn job() -> BatchJob {
    let job = BatchJob::good(ROWS).with(&[ROWS_IN_POSTGRES]);
    job.dir.write("longshore.toml", STORE);
    job.create();
    std::fs::copy(job.dir.path("rows.db"), job.dir.path("other.db")).unwrap();
    point_to(&job, "rows.db");
    job
}

fn point_to(job: &BatchJob, file: &str) {
    job.dir.write("rows.url", format!("sqlite:{}\n", job.dir.path(file).display()));
}

fn effects(job: &BatchJob, file: &str) -> u64 {
    let db = Connection::open(job.dir.path(file)).unwrap();
    db.query_one("SELECT count(*) FROM effects", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_batch_writes_nothing_into_another_database_until_an_operator_rebinds_it() {
    let job = job();
    job.dir.run(&["batch", "start", "."]).ok();
    point_to(&job, "other.db");
    let name = job.name();
    for command in [&["batch", "run", "."][..], &["batch", "recover"]] {
        let run = job.dir.run(command);
        assert_ne!(run.code, 0);
        let run = run.says("error:").says("/rows.db` server `").says("/other.db` server `");
        run.says("hint: if the database was moved").says(&format!("longshore batch rebind {name}"));
    }
    assert_eq!((effects(&job, "rows.db"), effects(&job, "other.db")), (0, 0));
    let rebound = job.operate("rebind", &[]).ok().json();
    assert!(rebound["before"]["path"].as_str().unwrap().ends_with("/rows.db"), "{rebound}");
    assert!(rebound["after"]["path"].as_str().unwrap().ends_with("/other.db"), "{rebound}");
    job.run(&[]).ok();
    assert_eq!((effects(&job, "rows.db"), effects(&job, "other.db")), (0, ROWS));
    let rows = job.rows(&name, "done");
    assert!(rows.len() == 20 && rows.iter().all(|row| row["attempt"] == 1), "no attempt was used");
}

#[test]
fn a_rebind_of_a_batch_that_does_not_exist_says_only_that() {
    let job = job();
    job.dir.run(&["batch", "start", "."]).ok();
    let run = job.dir.run(&["batch", "rebind", "nope"]).ends(1);
    assert!(run.err.starts_with("error: there is no batch `nope`\nhint:"), "{}", run.err);
}

#[test]
fn a_database_is_the_stores_own_whatever_its_address_looks_like() {
    let server: SharedPostgres = Rc::new(RefCell::new(PrivatePostgres::start().unwrap()));
    let job = BatchJob::good(ROWS).with(&[ROWS_IN_POSTGRES]).move_to(&server, &server, &[]);
    job.seed();
    let once = |job: &BatchJob| {
        let run = job.dir.run(&["batch", "run", ".", "--dry-run"]).ok();
        run.out.contains("exactly once") || run.err.contains("exactly once")
    };
    assert!(once(&job), "the same URL");
    let url = server.borrow().url();
    job.dir.write("rows.url", url.replace("127.0.0.1", "localhost"));
    assert!(once(&job), "another name of the host");
    job.dir.write("rows.url", server.borrow().url_at(IpAddr::V6(Ipv6Addr::LOCALHOST), "longshore"));
    server.borrow().run("CREATE SCHEMA barco; CREATE TABLE barco.rows AS SELECT * FROM rows").unwrap();
    let barco = format!("{url}?options=-csearch_path%3Dbarco,public");
    job.dir.write("rows.url", barco);
    assert!(!once(&job), "effects of the store's session would write into other schemas");
    job.dir.write("rows.url", url.replace("127.0.0.1", "localhost"));
    job.run(&[]).ok();
    job.assert_exact();
}

/// One batch file for tenants with a database each.
#[test]
fn each_tenant_has_the_database_that_its_name_selects() {
    let job = BatchJob::good(ROWS).with(&[(ROWS_IN_POSTGRES.0, "database = \"file:{tenant}.url\"")]);
    job.dir.write("longshore.toml", STORE);
    job.create();
    for tenant in ["acme", "barco"] {
        let file = format!("{tenant}.db");
        std::fs::copy(job.dir.path("rows.db"), job.dir.path(&file)).unwrap();
        job.dir.write(&format!("{tenant}.url"), format!("sqlite:{}\n", job.dir.path(&file).display()));
    }
    job.dir.run(&["batch", "run", ".", "--tenant", "acme"]).ok();
    assert_eq!((effects(&job, "acme.db"), effects(&job, "barco.db")), (ROWS, 0));
    job.dir.run(&["batch", "run", ".", "--tenant", "barco"]).ok();
    assert_eq!((effects(&job, "acme.db"), effects(&job, "barco.db")), (ROWS, ROWS));
    job.dir.run(&["batch", "run", ".", "--tenant", "cargo"]).ends(1).says("cargo.url");
}

/// Starts a command that waits for the URL of the rows' database, which it reads from the returned pipe. Other commands find
/// a file with the URL of `file` there.
fn start_waiting(job: &BatchJob, args: &[&str], file: &str) -> (ChildGuard, File) {
    let (pipe, url) = (job.dir.path("pipe"), job.dir.path("rows.url"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::rename(&pipe, &url).unwrap();
    let command = job.dir.start(args);
    const O_NONBLOCK: i32 = 0o4000;
    let open = || OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(&url).ok();
    let pipe = eventually(TIMEOUT, open);
    job.dir.write("new.url", format!("sqlite:{}\n", job.dir.path(file).display()));
    std::fs::rename(job.dir.path("new.url"), url).unwrap();
    (command, pipe)
}

/// Each reads the definition before the other changes it.
#[test]
fn a_rebind_and_an_update_at_the_same_time_never_undo_each_other() {
    let job = job();
    job.dir.run(&["batch", "start", "."]).ok();
    let name = job.name();
    let edit = |from: &str, to: &str| {
        let text = job.dir.read("batch.toml");
        assert!(text.contains(from), "{text}");
        job.dir.write("batch.toml", text.replace(from, to));
    };
    let (update, rebind) = (["batch", "update", &name, "."], ["batch", "rebind", &name]);
    let give = |mut pipe: File, file: &str| {
        pipe.write_all(format!("sqlite:{}\n", job.dir.path(file).display()).as_bytes()).unwrap();
    };

    edit("limit = \"none\"", "limit = 100");
    let (mut rebinding, pipe) = start_waiting(&job, &rebind, "rows.db");
    job.dir.run(&update).ok();
    give(pipe, "other.db");
    assert_eq!(rebinding.ends_within(TIMEOUT), 1, "{}", job.dir.read("stderr"));

    edit("limit = 100", "limit = 200");
    let (mut updating, pipe) = start_waiting(&job, &update, "other.db");
    job.dir.run(&rebind).ok();
    give(pipe, "rows.db");
    assert_eq!(updating.ends_within(TIMEOUT), 1, "{}", job.dir.read("stderr"));

    job.dir.run(&update).ok();
    job.run(&[]).ok();
    assert_eq!((effects(&job, "rows.db"), effects(&job, "other.db")), (0, ROWS));
    let rows = job.rows(&name, "done");
    assert!(rows.iter().all(|row| row["revision"] == 3), "{rows:?}");
}
