//! The storms of `crash` on PostgreSQL: workers are killed, and the server dies and comes back in the
//! middle, as `pg_ctl restart -m immediate` would have it. The server keeps its promises (`fsync`).

use longshore_testkit::servers::PrivatePostgres;

use crate::crash::Storm;
use crate::support::{Place, SOON, eventually, limit, soaked};

fn durable_server() -> PrivatePostgres {
    PrivatePostgres::start_with(&[("fsync", "on")]).unwrap()
}

/// A directory in which every command uses the server's database.
fn place_on(server: &PrivatePostgres) -> Place {
    let place = Place::new();
    place.write("longshore.toml", format!("store = \"{}\"\n", server.url()));
    place
}

#[test]
fn no_unit_lost_and_repeats_are_bounded_in_a_storm_of_kills_and_restarts_of_postgres() {
    let mut server = durable_server();
    let storm = Storm::new(place_on(&server), soaked(1, 3));
    storm.submit("chaos", |n| format!("{{\"n\":{n},\"ms\":{}}}", n % 20));
    storm.rage(&["--chaos-log", "runs"], || server.restart_immediate().unwrap());
    storm.assert_exact(storm.units, 0);
    storm.assert_repeats_are_bounded();
    let done = server.run("SELECT count(*) FROM longshore_unit WHERE state = 4").unwrap();
    assert_eq!(done.trim(), storm.units.to_string());
    let err = storm.place.read("stderr");
    assert!(
        err.contains("the store is unavailable"),
        "the workers lived through the restart: {err}"
    );
}

/// The command of the user is a note to this test, which has the server in its hands.
#[test]
fn chaos_restarts_the_server_by_the_users_command_and_its_books_balance() {
    let mut server = durable_server();
    let place = place_on(&server);
    let command = "touch restart; until test -e restarted; do sleep 0.05; done";
    let sizes = ["--units", "600", "--workers", "2", "--slots", "4", "--kills", "4", "--seed", "7"];
    let args = [&["chaos", "--json", "--restart-command", command], &sizes[..]].concat();
    let mut storm = place.start(&args);
    eventually(limit(4 * SOON), || place.path("restart").exists().then_some(()));
    server.restart_immediate().unwrap();
    place.write("restarted", "");
    let code = storm.ends_within(limit(4 * SOON));
    assert_eq!(code, 0, "{}", place.read("stderr"));
    let databases = server.run("SELECT datname FROM pg_database WHERE datname LIKE 'longshore_%'");
    assert_eq!(databases.unwrap().trim(), "", "the storm's database is gone");
}

#[test]
fn chaos_has_no_server_to_restart_where_the_store_is_a_file() {
    let place = Place::new();
    let run = place.run(&["chaos", "--units", "1", "--restart-command", "true"]);
    run.ends(2).says("no server that could be restarted").says("postgres://");
}
