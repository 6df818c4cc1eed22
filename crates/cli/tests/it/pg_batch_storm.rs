//! The storms of `batch_storm` on PostgreSQL, with a server crash and restart in the middle.
//!
//! If rows and store are one database, effects are exactly once. If they are two, POST is at least
//! once, and the rows' own keys recognise a repeat.

use std::cell::RefCell;
use std::rc::Rc;

use longshore_testkit::servers::PrivatePostgres;

use crate::batch_job::{ROWS_IN_POSTGRES, SharedPostgres};
use crate::batch_storm::{BOUNDED_ENQUEUE, BatchStorm, STEPS, kill_initiators_and_workers, kill_runs};
use crate::support::pick_size;

fn server() -> SharedPostgres {
    Rc::new(RefCell::new(PrivatePostgres::start_with(&[("fsync", "on")]).unwrap()))
}

fn restart(server: &SharedPostgres) {
    server.borrow_mut().restart_immediate().unwrap();
}

/// A storm with rows and store on these servers.
fn storm(
    rows: &SharedPostgres,
    store: &SharedPostgres,
    keys: &[(&str, &str)],
    more: &[(&str, &str)],
) -> BatchStorm {
    BatchStorm::new(pick_size(800, 10_000), &[&[ROWS_IN_POSTGRES], more].concat()).move_to(rows, store, keys)
}

#[test]
fn effects_exactly_once_in_a_storm_of_killed_runs_on_one_postgres() {
    let server = server();
    let storm = storm(&server, &server, &[], &[]);
    kill_runs(&storm, || restart(&server));
}

#[test]
fn steps_are_exactly_once_in_a_storm_of_killed_runs_on_one_postgres() {
    let server = server();
    let storm = storm(&server, &server, &[], &[STEPS]);
    kill_runs(&storm, || restart(&server));
}

#[test]
fn no_unit_lost_in_a_storm_of_killed_initiators_and_workers_on_one_postgres() {
    let server = server();
    let storm = storm(&server, &server, &[], &[BOUNDED_ENQUEUE]);
    kill_initiators_and_workers(&storm, || restart(&server));
}

/// The unique keys that recognise a repeat.
pub const KEYS: [(&str, &str); 3] = [
    ("n INTEGER CHECK (n > 0)", "n INTEGER CHECK (n > 0), unit TEXT UNIQUE"),
    ("code TEXT", "code TEXT, unit TEXT UNIQUE"),
    ("failed INTEGER)", "failed INTEGER, UNIQUE (batch, generation))"),
];

/// Idempotent SQL.
pub const REPEATABLE: [(&str, &str); 4] = [
    ("SET done = done + 1", "SET done = 1"),
    (
        "(row, batch, worker, n) VALUES (:key, :batch_id, :worker_id, :n)",
        "(row, batch, worker, n, unit) VALUES (:key, :batch_id, :worker_id, :n, :unit_id) \
         ON CONFLICT DO NOTHING",
    ),
    (
        "(row, batch, code) VALUES (:key, :batch_id, :error_code)",
        "(row, batch, code, unit) VALUES (:key, :batch_id, :error_code, :unit_id) \
         ON CONFLICT DO NOTHING",
    ),
    (":done, :failed)", ":done, :failed) ON CONFLICT DO NOTHING"),
];

#[test]
fn repeats_are_recognised_by_their_key_in_a_storm_with_the_rows_in_another_postgres() {
    let (rows, store) = (server(), server());
    let keys = [&KEYS[..], &[("n INTEGER, run_key TEXT)", "n INTEGER, run_key TEXT UNIQUE)")]].concat();
    let storm = storm(&rows, &store, &keys, &[&REPEATABLE[..], &[STEPS]].concat());
    kill_runs(&storm, || {
        restart(&store);
        restart(&rows);
    });
}
