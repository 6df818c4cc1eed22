//! The storms of `crash` on PostgreSQL: workers are killed, and the server crashes and restarts in
//! the middle, as with `pg_ctl restart -m immediate`. The server is durable (`fsync`).

use longshore_testkit::servers::PrivatePostgres;

use crate::crash::CrashStorm;
use crate::support::{TIMEOUT, TestDir, eventually, pick_size, stretch};

fn durable_server() -> PrivatePostgres {
    PrivatePostgres::start_with(&[("fsync", "on")]).unwrap()
}

/// A test directory in which every command uses the server's database.
fn dir_on(server: &PrivatePostgres) -> TestDir {
    let dir = TestDir::new();
    dir.write("longshore.toml", format!("store = \"{}\"\n", server.url()));
    dir
}

#[test]
fn no_unit_lost_and_repeats_are_bounded_in_a_storm_of_kills_and_restarts_of_postgres() {
    let mut server = durable_server();
    let storm = CrashStorm::new(dir_on(&server), pick_size(1, 3));
    storm.submit("chaos", |n| format!("{{\"n\":{n},\"ms\":{}}}", n % 20));
    storm.run_with_kills(&["--chaos-log", "runs"], || server.restart_immediate().unwrap());
    storm.assert_exact(storm.units, 0);
    storm.assert_repeats_are_bounded();
    let done = server.run("SELECT count(*) FROM longshore_unit_current WHERE state = 4").unwrap();
    assert_eq!(done.trim(), storm.units.to_string());
    let err = storm.dir.read("stderr");
    assert!(err.contains("the store is unavailable"), "the workers lived through the restart: {err}");
}

/// The user's restart command signals this test by a file; the test restarts the server.
#[test]
fn chaos_restarts_the_server_by_the_users_command_and_its_books_balance() {
    let mut server = durable_server();
    let dir = dir_on(&server);
    let command = "touch restart; until test -e restarted; do sleep 0.05; done";
    let sizes = ["--units", "600", "--workers", "2", "--slots", "4", "--kills", "4", "--seed", "7"];
    let args = [&["chaos", "--json", "--restart-command", command], &sizes[..]].concat();
    let mut storm = dir.start(&args);
    eventually(stretch(4 * TIMEOUT), || dir.path("restart").exists().then_some(()));
    server.restart_immediate().unwrap();
    dir.write("restarted", "");
    let code = storm.ends_within(stretch(4 * TIMEOUT));
    assert_eq!(code, 0, "{}", dir.read("stderr"));
    let databases = server.run("SELECT datname FROM pg_database WHERE datname LIKE 'longshore_%'");
    assert_eq!(databases.unwrap().trim(), "", "the chaos run dropped its database");
}

/// The faults of PostgreSQL's connections, which take long, are in a soak; `./test` stops workers and locks a file.
#[test]
fn chaos_with_faults_loses_nothing_in_a_storm_and_says_when_work_continued() {
    let server = pick_size(false, true).then(durable_server);
    let dir = server.as_ref().map_or_else(TestDir::new, dir_on);
    let sizes = ["--units", "600", "--workers", "2", "--slots", "4", "--kills", "2", "--seed", "7"];
    let report = dir.run(&[&["chaos", "--faults", "--json"], &sizes[..]].concat()).ok().json();
    let faults: Vec<&str> =
        report["faults"].as_array().unwrap().iter().map(|fault| fault["fault"].as_str().unwrap()).collect();
    let stalls = faults.iter().filter(|fault| fault.contains("stalls")).count();
    let stops = faults.iter().filter(|fault| fault.contains("stopped")).count();
    assert_eq!((stalls, stops), (1, 2), "{report}");
    assert!(server.is_none() || faults.len() == 5, "{report}");
}

#[test]
fn chaos_has_no_server_to_restart_where_the_store_is_a_file() {
    let dir = TestDir::new();
    let run = dir.run(&["chaos", "--units", "1", "--restart-command", "true"]);
    run.ends(2).says("no server that could be restarted").says("postgres://");
}
