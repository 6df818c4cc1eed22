//! Trials, the rest after them, golden sets and comparisons: what people do before a batch costs much.

use serde_json::{Value, json};

use crate::batch_job::{BatchJob, edit_batch};
use crate::support::{TIMEOUT, eventually, stretch};

const PRICES: &str = "prices = { input = 1.0, output = 5.0 }";

fn keys(answers: &Value) -> Vec<u64> {
    let mut keys: Vec<u64> =
        answers.as_array().unwrap().iter().map(|row| row["key"].as_u64().unwrap()).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn a_sample_is_spread_over_all_rows_and_prints_its_answers_and_the_cost_of_all() {
    let job = BatchJob::new(200, "CASE i WHEN 101 THEN 'bad' ELSE 'good' END");
    let trial = job.run(&["--sample", "4"]).ends(3).json();
    assert_eq!(keys(&trial["answers"]), [1, 51, 101, 151], "{trial}");
    let bad = trial["answers"].as_array().unwrap().iter().find(|row| row["key"] == 101).unwrap();
    assert_eq!(bad["state"], "failed");
    assert!(bad["answer"].as_str().unwrap().starts_with("I am sorry") && bad["reason"].is_string(), "{bad}");
    let (cost, all) = (trial["cost"].as_f64().unwrap(), trial["cost_of_all"].as_f64().unwrap());
    assert!((45.0..55.0).contains(&(all / cost)), "{trial}");
    assert_eq!(
        (job.count("effects"), job.count("ends")),
        (3, 0),
        "the rows are done, the batch's end is not told"
    );
}

#[test]
fn the_rest_is_run_after_trials_and_each_row_once() {
    let job = BatchJob::good(60);
    let trial = job.dir.run(&["batch", "run", ".", "--sample", "5"]).ok();
    assert!(trial.out.contains("all 60 candidates would cost about $"), "{}", trial.out);
    assert_eq!(trial.out.matches("{\"n\": ").count(), 5, "{}", trial.out);
    trial.says("--continue runs the rest");
    // Rows stay candidates, as in a table that POST does not change.
    job.execute("UPDATE rows SET done = 0");
    job.dir.run(&["batch", "run", ".", "--limit", "7"]).ok().says("--continue runs the rest");
    job.execute("UPDATE rows SET done = 0");
    let rest = job.run(&["--continue"]).ok().json();
    let (done, skipped) = (rest["done"].as_u64().unwrap(), rest["skipped"].as_u64().unwrap());
    assert_eq!((done + skipped, job.count("ends")), (60, 2), "{rest}");
    assert!((5..=12).contains(&skipped), "{rest}");
    let twice = job.count("(SELECT row FROM effects GROUP BY row HAVING count(*) > 1)");
    assert!(twice <= 1, "a trial may repeat a row of another, the rest does not: {twice}");
    assert_eq!(job.query::<u64>("SELECT count(DISTINCT row) FROM effects"), 60);
    BatchJob::good(3).run(&["--continue"]).ends(1).says("there is no trial of this file").says("hint: ");
}

#[test]
fn without_post_nothing_is_changed_and_two_files_are_compared_over_the_same_rows() {
    let job = BatchJob::good(40);
    job.create();
    let other = job.write(
        "other.toml",
        &[
            ("prompt = \"Row {{ id }} is", "prompt = \"Row 1{{ id }} is"),
            (PRICES, "prices = { input = 2.0, output = 9.0 }"),
        ],
    );
    let a = job.run(&["--no-post", "--sample", "10"]).ok().json();
    let b = job
        .dir
        .run(&["batch", "run", other.to_str().unwrap(), "--no-post", "--sample", "10", "--json"])
        .ok()
        .json();
    assert_eq!(keys(&a["answers"]), keys(&b["answers"]));
    assert_eq!((job.count("effects"), job.count("rows WHERE done > 0"), job.count("ends")), (0, 0, 0));
    let (a, b) = (a["batch"].as_str().unwrap(), b["batch"].as_str().unwrap());
    let compared = job.dir.run(&["batch", "compare", a, b, "--json"]).ok().json();
    assert_eq!(
        (&compared["agreement"], &compared["fields"]),
        (&json!(0.0), &json!({ "n": 0.0 })),
        "{compared}"
    );
    assert_eq!(compared["rows"].as_array().unwrap().len(), 10);
    assert!(compared["b"]["cost"].as_f64() > compared["a"]["cost"].as_f64(), "{compared}");
    let table = job.dir.run(&["batch", "compare", a, b]).ok().out;
    for words in ["0 of 10 rows agree (0 %)", "n: 1 ", "n: 11", "mean latency"] {
        assert!(table.contains(words), "no {words} in {table}");
    }
    assert!(table.lines().all(|line| line.chars().count() <= 120), "{table}");
    let same = job.dir.run(&["batch", "compare", a, a]).ok().out;
    assert!(same.contains("10 of 10 rows agree (100 %)") && !same.contains("≠"), "{same}");
    let csv = job.dir.run(&["batch", "compare", a, b, "--csv"]).ok().out;
    assert_eq!(csv.lines().count(), 11, "{csv}");
    assert!(csv.starts_with("key,agree,differs,answer_a,answer_b,"), "{csv}");
    job.run(&["--no-post"]).ends(1).says("it needs a limit").says("--sample 50");
    job.dir.run(&["batch", "compare", a, "nothing"]).ends(1).says("there is no batch");
}

/// A batch file with three known answers, of which `right` are right.
fn with_golden_set(pass: &str, right: u64, edits: &[(&str, &str)]) -> BatchJob {
    let job = BatchJob::good(9);
    let expected = (1..=3).map(|key| {
        let answer = if key <= right { key } else { 99 };
        format!("[[expect]]\nkey = {key}\nanswer = {{ n = {answer} }}\n\n")
    });
    let golden: String = expected.collect();
    let text = edit_batch(edits);
    job.dir.write("batch.toml", format!("{text}\n[check]\npass = \"{pass}\"\n\n{golden}"));
    job
}

#[test]
fn a_golden_set_is_scored_before_the_night_and_too_many_wrong_answers_stop_the_batch() {
    let job = with_golden_set("90%", 2, &[]);
    let refused = job.dir.run(&["batch", "run", ".", "--check"]).ends(1);
    let refused = refused.says("the batch was not run: 2 of 3 known answers are right, and 90 % are needed");
    let row: Vec<&str> = refused.out.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(row, ["3", "n", "99", "3"], "{}", refused.out);
    assert_eq!((job.count("effects"), job.count("ends")), (0, 0), "nothing is applied");

    let job = with_golden_set("60%", 2, &[]);
    let run = job.run(&["--check"]).ok();
    let lines: Vec<Value> = run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let check = &lines[0]["check"];
    assert_eq!(
        (&check["right"], &check["rows"], &check["passed"]),
        (&json!(2), &json!(3), &json!(true)),
        "{check}"
    );
    assert_eq!(
        (&lines[1]["done"], job.count("effects")),
        (&json!(9), 9),
        "then all rows are run, those three too"
    );
    BatchJob::good(3)
        .run(&["--check"])
        .ends(1)
        .says("--check needs rows with known answers")
        .says("[[expect]]");
    let job = with_golden_set("190%", 2, &[]);
    job.run(&["--check"]).ends(1).says("batch.toml, line ").says("must be a share");
}

/// Other workers would ask about the rows that it leaves.
#[test]
fn an_interrupted_check_leaves_no_row_to_other_workers() {
    let slow = [
        ("script = \"script.toml\"", "script = \"script.toml\"\ndelay = \"2s\""),
        ("workers = 8", "workers = 1"),
    ];
    let job = with_golden_set("60%", 3, &slow);
    job.create();
    let mut check = job.start(&["--check"]);
    let batches = || job.dir.run(&["batch", "list", "--json"]).json();
    eventually(TIMEOUT, || batches()[0]["leased"].as_u64().is_some_and(|leased| leased > 0).then_some(()));
    check.signal("INT");
    assert_eq!(check.ends_within(stretch(TIMEOUT)), 1);
    assert!(job.dir.read("stderr").contains("the check did not end"), "{}", job.dir.read("stderr"));
    let batch = job.batch();
    assert_eq!(batch["status"], "cancelled", "{batch}");
    assert_eq!(
        (&batch["total"], &batch["ready"], &batch["leased"]),
        (&json!(3), &json!(0), &json!(0)),
        "{batch}"
    );
    assert_ne!(batch["cancelled"], 0, "{batch}");
}

/// The candidates that another batch has are named, with that batch.
#[test]
fn a_candidate_that_another_batch_has_is_named() {
    let job = BatchJob::good(5);
    job.create();
    job.dir.run(&["batch", "start", "."]).ok();
    let first = job.name();
    let second = job.dir.run(&["batch", "run", ".", "--new"]).ok();
    second.says("5 candidates: row 1 is in batch `").says(&format!("row 3 is in batch `{first}`, …"));
}
