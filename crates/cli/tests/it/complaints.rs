//! Problems that users of other queues report, one test per problem: each test provokes it here, on
//! SQLite and on PostgreSQL, and it must not occur. `docs/complaints.md` lists them, with affected
//! products and why it cannot happen here.
//!
//! Tests count calls, rows, pages, notifications and attempts; no assertion is about time.

mod batches;
mod claim_cost;
mod dead_tuples;
mod fixture;
mod idle_cost;
mod memory;
mod outage;
mod single_run;
mod sqlite_locks;
mod tenant_fairness;
mod worker_death;

use std::collections::BTreeSet;
use std::path::Path;

/// The table names exactly the tests in this folder.
#[test]
fn every_complaint_of_the_table_has_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = std::fs::read_to_string(root.join("../../docs/complaints.md")).unwrap();
    let words = table.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let named: BTreeSet<String> =
        words.filter(|word| word.starts_with("complaint_")).map(str::to_owned).collect();
    let folder = std::fs::read_dir(root.join("tests/it/complaints")).unwrap();
    let mut tests = BTreeSet::new();
    for file in folder {
        let code = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let functions = code.split("fn complaint_").skip(1);
        tests.extend(functions.map(|rest| format!("complaint_{}", rest.split('(').next().unwrap())));
    }
    assert_eq!(named, tests);
}
