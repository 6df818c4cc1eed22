//! Batches that name one of the tenant's profiles (`profile = "@NAME"`): checked before the first row,
//! found beside the rows or in the settings' store, and priced by an estimate.

use serde_json::{Value, json};

use crate::batch_job::BatchJob;

const ROWS: u64 = 10;

/// A job with rows that ask the profile `name`.
fn job(name: &str) -> BatchJob {
    let job = BatchJob::good(ROWS).with(&[("profile = \"script\"", &format!("profile = \"@{name}\""))]);
    job.create();
    job
}

fn add_profile(job: &BatchJob) {
    let add = ["profile", "add", "fast", "--provider", "scripted", "--script", "script.toml"];
    job.dir.run(&[&add[..], &["--model", "m", "--price-input", "1", "--price-output", "5"]].concat()).ok();
}

/// Leaves the store to the defaults: a batch is in its rows' database, a profile is not.
fn without_store(job: BatchJob) -> BatchJob {
    job.dir.write("longshore.toml", "[worker]\nttl = \"1s\"\n");
    job
}

/// 63 rows were failed by a typing error in the profile's name.
#[test]
fn a_profile_that_does_not_exist_fails_the_batch_and_no_row() {
    let job = job("fsat");
    add_profile(&job);
    for args in [&["batch", "run", "."][..], &["batch", "run", "--dry-run", "."], &["batch", "start", "."]] {
        let run = job.dir.run(args).ends(1).says("no profile `fsat`").says("did you mean `@fast`?");
        assert!(run.err.contains("batch.toml, line 15:"), "{}", run.err);
    }
    assert_eq!(job.batches(), [] as [Value; 0]);
    job.dir.run(&["profile", "suspend", "fast"]).ok();
    job.write("batch.toml", &[("profile = \"script\"", "profile = \"@fast\"")]);
    job.dir.run(&["batch", "run", "."]).ends(1).says("`fast` is suspended").says("profile resume fast");
    assert_eq!((job.batches().len(), job.count("failures")), (0, 0));
}

#[test]
fn a_template_instead_of_a_profile_is_named_as_such() {
    let job = job("house");
    let add = ["profile", "add", "house", "--template", "--provider", "scripted", "--script", "script.toml"];
    job.dir.run(&[&add[..], &["--model", "m"]].concat()).ok();
    let run = job.dir.run(&["batch", "run", "."]).ends(1).says("is a template").says("--extends house");
    assert!(!run.err.contains("did you mean"), "{}", run.err);
}

#[test]
fn a_profile_whose_key_cannot_be_opened_fails_the_batch_and_no_row() {
    let job = job("keyed");
    let add = ["profile", "add", "keyed", "--provider", "openai", "--model", "gpt-5"];
    job.dir.run(&[&add[..], &["--key", "env:NO_SUCH_VARIABLE"]].concat()).ok();
    job.dir.run(&["batch", "run", "."]).ends(1).says("NO_SUCH_VARIABLE").says("profile test keyed");
    assert_eq!(job.batches(), [] as [Value; 0]);
}

#[test]
fn a_profile_is_found_although_the_batch_is_in_its_rows_database() {
    let job = without_store(job("fast"));
    add_profile(&job);
    // Workers would look in the batch's store only.
    let start = job.dir.run(&["batch", "start", "."]).ends(1).says("profile `fast` is in").says("--store");
    assert!(start.err.contains("hint:"), "{}", start.err);
    let run = job.run(&[]).ok().json();
    assert_eq!((&run["done"], &run["failed"]), (&json!(ROWS), &json!(0)), "{run}");
    assert_eq!(job.count("effects"), ROWS);
    // The calls are in the books of the store that has the profile.
    let usage = job.dir.run(&["usage", "--json"]).ok().json();
    assert_eq!(usage["total"]["calls"], json!(ROWS), "{usage}");
    let cost = usage["total"]["cost_picos"].as_i64().unwrap();
    assert!(cost > 0, "{usage}");
}

#[test]
fn an_estimate_knows_the_prices_of_the_tenants_profile() {
    for job in [job("fast"), without_store(job("fast"))] {
        add_profile(&job);
        let inline = BatchJob::good(ROWS);
        let prices = |json: &Value| (json["cost_estimate"].clone(), json["cost_at_most"].clone());
        let expected = inline.dir.run(&["batch", "run", "--dry-run", ".", "--json"]).ok().json();
        let shown = job.dir.run(&["ai", "estimate", ".", "--json"]).ok().json();
        assert_eq!(prices(&shown), prices(&expected), "{shown}");
        assert!(shown["cost_at_most"].as_f64().unwrap() > 0.0, "{shown}");
    }
}
