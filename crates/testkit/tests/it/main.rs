//! Tests of the private servers.
#![cfg(feature = "servers")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::net::IpAddr;
use std::process::Command;

use longshore_testkit::servers::{PrivatePgbouncer, PrivatePostgres};

/// Runs psql with only a URL, and returns its output.
fn psql(url: &str, sql: &str) -> String {
    let output = Command::new("psql").args([url, "-XAtc", sql]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn settings_are_the_tests_to_choose() {
    let server = PrivatePostgres::start_with(&[("fsync", "on"), ("max_connections", "7")]).unwrap();
    let chosen = server.run("SELECT current_setting('fsync'), current_setting('max_connections')");
    assert_eq!(chosen.unwrap(), "on\t7\n");
}

#[test]
fn a_fresh_database_is_empty_or_a_copy() {
    let server = PrivatePostgres::start().unwrap();
    server.run("CREATE TABLE t AS SELECT 1 AS a").unwrap();
    let (empty, copy) = (server.fresh_database(None), server.fresh_database(Some(server.name())));
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(psql(&empty.unwrap(), tables), "0");
    let copy = copy.unwrap();
    assert_eq!(psql(&copy, "SELECT a FROM t"), "1");
    let through = PrivatePgbouncer::start(&server).unwrap();
    assert_eq!(psql(&through.pooled_url(&copy), "SELECT a FROM t"), "1");
}

#[test]
fn an_immediate_restart_is_a_crash_that_keeps_what_was_committed() {
    let mut server = PrivatePostgres::start_with(&[("log_checkpoints", "off")]).unwrap();
    let pooler = PrivatePgbouncer::start(&server).unwrap();
    psql(&pooler.url(), "CREATE TABLE t AS SELECT 1 AS a; CREATE UNLOGGED TABLE u AS SELECT 1 AS a");
    server.restart_immediate().unwrap();
    // Crash recovery empties an unlogged table; a clean restart does not.
    let left = "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM u)";
    assert_eq!(psql(&server.url(), left), "1|0");
    assert_eq!(psql(&pooler.url(), left), "1|0");
    psql(&server.url(), "INSERT INTO u VALUES (1)");
    server.restart().unwrap();
    assert_eq!(psql(&server.url(), left), "1|1");
}

#[test]
fn it_listens_where_it_is_told() {
    let mut server = PrivatePostgres::start().unwrap();
    let other: IpAddr = "127.7.7.7".parse().unwrap();
    server.listen(&[other]).unwrap();
    assert_eq!(psql(&server.url_at(other, server.name()), "SELECT inet_server_addr()"), "127.7.7.7");
    assert_eq!(psql(&server.url(), "SELECT inet_server_addr()"), "127.0.0.1");
}

#[test]
fn the_pooler_gives_each_transaction_any_connection() {
    let server = PrivatePostgres::start().unwrap();
    let pooler = PrivatePgbouncer::start(&server).unwrap();
    assert!(psql(&pooler.url_for("pgbouncer"), "SHOW CONFIG").contains("pool_mode|transaction"));
}
