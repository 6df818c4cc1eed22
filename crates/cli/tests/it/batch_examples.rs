//! The examples do what their README says; newcomers run them first.

use std::path::Path;

use longshore_sqlite::rusqlite::Connection;
use longshore_sqlite::rusqlite::types::FromSql;
use serde_json::{Value, json};

use crate::support::{CliOutput, TestDir};

/// Copies an example from the repository.
pub(crate) fn copy_example(name: &str) -> TestDir {
    let dir = TestDir::new();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    std::fs::create_dir(dir.path(name)).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let file = entry.unwrap();
        // A database in the folder is left over from a developer's own run.
        if !file.file_name().display().to_string().contains(".db") {
            std::fs::copy(file.path(), dir.path(name).join(file.file_name())).unwrap();
        }
    }
    dir
}

fn column<T: FromSql>(dir: &TestDir, database: &str, sql: &str) -> Vec<T> {
    let db = Connection::open(dir.path(database)).unwrap();
    let mut query = db.prepare(sql).unwrap();
    let rows = query.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

fn orders<T: FromSql>(dir: &TestDir, sql: &str) -> Vec<T> {
    column(dir, "purchase-orders/orders.db", sql)
}

#[test]
fn the_purchase_orders_come_to_the_verdicts_that_the_readme_promises() {
    let dir = copy_example("purchase-orders");
    let run = dir.run(&["batch", "run", "purchase-orders"]).ok().says("created");
    assert!(run.out.contains("done    400"), "{}", run.out);
    assert!(run.out.contains("(simulated)"), "{}", run.out);
    let samples = run.out.lines().filter(|line| line.contains("\"verdict\""));
    let samples: Vec<&str> = samples.collect();
    assert_eq!(samples.len(), 3, "{}", run.out);
    for verdict in ["approve", "query", "reject"] {
        assert!(samples.iter().any(|line| line.contains(verdict)), "{samples:?}");
    }
    let verdicts = "SELECT review_status || ' ' || count(*) FROM po_lines GROUP BY review_status";
    assert_eq!(orders::<String>(&dir, verdicts), ["APPROVE 372", "QUERY 16", "REJECT 12"]);
    let ends = "SELECT status || ' ' || generation || ' ' || done || ' ' || failed FROM batch_log";
    assert_eq!(orders::<String>(&dir, ends), ["complete 1 400 0"]);
    let store = ["--store", "sqlite:purchase-orders/orders.db"];
    dir.run(&[&store[..], &["verify"]].concat()).ok();
    let batches = dir.run(&[&store[..], &["batch", "list", "--json"]].concat()).ok().json();
    let answers = &batches[0]["sums"]["answers"];
    assert_eq!(answers, 406, "six were unsure and asked again; a refusal is no answer");
    assert!(!dir.path("longshore.db").exists(), "the store is in the rows' database");
}

#[test]
fn the_mistaken_lines_are_those_of_the_readme() {
    let dir = copy_example("purchase-orders");
    dir.run(&["batch", "run", "purchase-orders"]).ok();
    let readme = dir.read("purchase-orders/README.md");
    for verdict in ["query", "reject"] {
        let rows = readme.lines().filter_map(|line| line.split_once(&format!("| {verdict} |")));
        let mut documented: Vec<i64> = Vec::new();
        for (_, lines) in rows {
            let numbers = lines.trim_matches(['|', ' ']).split_whitespace();
            documented.extend(numbers.map(|number| number.parse::<i64>().unwrap()));
        }
        documented.sort_unstable();
        let sql =
            format!("SELECT po_line_id FROM po_lines WHERE review_status = upper('{verdict}') ORDER BY 1");
        assert_eq!(orders::<i64>(&dir, &sql), documented, "{verdict}");
    }
}

#[test]
fn a_second_run_of_the_purchase_orders_finds_nothing_to_do() {
    let dir = copy_example("purchase-orders");
    let run = || dir.run(&["batch", "run", "purchase-orders", "--json"]).ok().json();
    let (first, second) = (run(), run());
    assert_eq!((&first["total"], &second["total"]), (&json!(400), &json!(0)));
    assert_ne!(first["batch"], second["batch"]);
    assert_eq!(orders::<i64>(&dir, "SELECT count(*) FROM batch_log"), [2], "one for each");
}

#[test]
fn the_last_line_for_scripts_has_the_keys_of_the_contract() {
    let dir = copy_example("purchase-orders");
    let run = dir.run(&["batch", "run", "purchase-orders", "--json", "--limit", "40"]).ok();
    let line = run.out.lines().last().unwrap();
    assert_eq!(run.out.lines().count(), 1, "{}", run.out);
    let keys = ["batch", "status", "total", "done", "failed", "cancelled", "seconds", "cost"];
    let at = keys.map(|key| line.find(&format!("\"{key}\":")).expect(key));
    assert!(at.is_sorted(), "{line}");
    let last: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&last["status"], &last["simulated"]), (&json!("complete"), &json!(true)));
    assert_eq!((&last["total"], &last["done"]), (&json!(40), &json!(40)), "{last}");
    assert!(last["cost"].as_f64() > Some(0.0) && last["seconds"].as_f64() > Some(0.0), "{last}");
}

#[test]
fn the_purchase_orders_can_be_narrowed_by_a_parameter() {
    let dir = copy_example("purchase-orders");
    let args = ["batch", "run", "purchase-orders", "--json", "--param", "since=2026-05-01"];
    let total = dir.run(&args).ok().json()["total"].as_u64().unwrap();
    let expected = "SELECT count(*) FROM po_lines WHERE created_at >= '2026-05-01'";
    assert_eq!(orders::<u64>(&dir, expected), [total]);
    assert!((1..400).contains(&total), "{total}");
}

#[test]
fn the_arithmetic_has_the_acceptance_values_and_five_workers() {
    let dir = copy_example("arithmetic");
    let last = dir.run(&["batch", "run", "arithmetic", "--json"]).ok().json();
    assert_eq!((&last["done"], &last["total"]), (&json!(5), &json!(5)), "{last}");
    let ask = |sql: &str| column::<String>(&dir, "arithmetic/arithmetic.db", sql);
    let verdicts = ask("SELECT AI_VERDICT FROM DEMO_INPUT ORDER BY ROW_ID");
    assert_eq!(verdicts, ask("SELECT EXPECTED_CORRECT FROM DEMO_INPUT ORDER BY ROW_ID"));
    assert_eq!(verdicts, ["Y", "N", "Y", "N", "Y"]);
    let sums = ask("SELECT CAST(AI_ACTUAL_SUM AS TEXT) FROM DEMO_INPUT ORDER BY ROW_ID");
    assert_eq!(sums, ["2", "7", "25", "14", "300"]);
    assert_eq!(ask("SELECT DISTINCT WORKER_ID FROM DEMO_INPUT").len(), 5, "all at once");
    // The example belongs to its own tenant.
    let list = |tenant: &str| {
        let store = ["--store", "sqlite:arithmetic/arithmetic.db", "--tenant", tenant];
        dir.run(&[&store[..], &["batch", "list", "--json"]].concat()).ok().json()
    };
    assert_eq!(list("demo").as_array().unwrap().len(), 1);
    assert_eq!(list("default"), json!([]));
}

#[test]
fn the_support_tickets_go_through_python_to_what_the_readme_promises() {
    let dir = copy_example("support-tickets");
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python");
    let run = |more: &[&str]| {
        let args = [&["batch", "run", "support-tickets", "--json"], more].concat();
        CliOutput::of(dir.command(&args).env("PYTHONPATH", &sdk).spawn().unwrap()).ok().json()
    };
    let shown = run(&["--dry-run"]);
    let prompt = shown["prompts"][0]["prompt"].as_str().unwrap();
    assert!(prompt.contains("[card number]") && !prompt.contains("4111"), "{prompt}");
    assert!(!prompt.contains("invoice"), "what it quotes is cut: {prompt}");
    let last = run(&[]);
    assert_eq!((&last["done"], &last["total"]), (&json!(60), &json!(60)), "{last}");
    let ask = |sql: &str| column::<String>(&dir, "support-tickets/tickets.db", sql);
    let readme = dir.read("support-tickets/README.md");
    let counts = "SELECT status || '|' || coalesce(category, '') || '|' || count(*) FROM tickets \
                  GROUP BY status, category";
    assert!(readme.contains(&ask(counts).join("\n")), "{:?}", ask(counts));
    assert_eq!(ask("SELECT desk FROM inbox GROUP BY ticket_id HAVING count(*) > 1"), [""; 0]);
    let due = "SELECT due_at FROM tickets WHERE ticket_id = 5";
    assert_eq!(ask(due), ["2026-03-03 12:15:00"], "three quarters of an hour were left on Monday");
    assert_eq!(run(&[])["total"], 0, "a second run finds nothing to do");
}

#[test]
fn the_claims_go_through_their_steps() {
    let dir = copy_example("claims");
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python");
    let run = |more: &[&str]| {
        let args = [&["batch", "run", "claims", "--json"], more].concat();
        CliOutput::of(dir.command(&args).env("PYTHONPATH", &sdk).spawn().unwrap()).ok().json()
    };
    let shown = run(&["--dry-run"]);
    assert_eq!(shown["steps"].as_array().unwrap().len(), 5, "{shown}");
    assert!(shown["cost_estimate"].as_f64() > Some(0.0), "{shown}");
    let last = run(&[]);
    assert_eq!((&last["done"], &last["total"]), (&json!(25), &json!(25)), "{last}");
    let ask = |sql: &str| column::<String>(&dir, "claims/claims.db", sql);
    let kinds = "SELECT kind || ' ' || count(*) || ' ' || count(finding) FROM claims
                 WHERE status = 'ANSWERED' GROUP BY kind ORDER BY kind";
    assert_eq!(ask(kinds), ["other 8 0", "theft 9 9", "water 8 0"]);
    assert_eq!(ask("SELECT count(*) || ' ' || count(DISTINCT claim_id) FROM claim_log"), ["25 25"]);
    assert_eq!(ask("SELECT letter FROM claims WHERE claim_id = 7"), ["We have looked into your claim 7."]);
    assert_eq!(run(&[])["total"], 0, "a second run finds nothing to do");
}
