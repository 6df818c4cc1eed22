//! The provider of a batch fails for some seconds.

use std::time::{Duration, Instant};

use longshore_testkit::fake_ai::{FakeAnswer, FakeBehaviour};

use crate::ai_fixture::AiFixture;
use crate::batch_job::BatchJob;
use crate::support::{TIMEOUT, TestDir, eventually};

const ROWS: u64 = 300;

#[test]
fn three_seconds_of_503_cost_no_row_and_a_few_seconds() {
    let provider = AiFixture::bare(TestDir::new());
    let (text, delay) = (Some(r#"{"n": 1}"#.to_owned()), Duration::from_millis(100));
    let fine = FakeBehaviour::Answer(FakeAnswer { text, delay, ..FakeAnswer::default() });
    provider.fake.set_default(fine.clone());
    let profile = format!("provider = \"openai\"\nmodel = \"m\"\nendpoint = \"{}\"", provider.fake.url());
    let scripted = "provider = \"scripted\"\nmodel = \"script\"\nscript = \"script.toml\"";
    let job = BatchJob::good(ROWS).with(&[(scripted, profile.as_str()), ("workers = 8", "workers = 10")]);
    job.seed();
    let mut run = job.start(&[]);
    eventually(TIMEOUT, || (job.count("effects") > 10).then_some(()));
    provider.fake.set_default(FakeBehaviour::error(503));
    std::thread::sleep(Duration::from_secs(3));
    provider.fake.set_default(fine);
    let healed = Instant::now();
    assert_eq!(run.ends_within(TIMEOUT), 0, "{}", job.dir.read("stderr"));
    let recovery = healed.elapsed();
    eprintln!("{ROWS} rows were done {recovery:.1?} after an outage of 3 s");
    assert_eq!((job.count("effects"), job.count("failures")), (ROWS, 0));
    assert_eq!(job.count("rows WHERE done <> 1"), 0);
    job.dir.run(&["verify"]).ok();
    assert!(recovery < Duration::from_secs(20), "{recovery:?}");
    let log = job.dir.read("stderr");
    let lines = log.lines().filter(|line| line.contains("put off")).count();
    assert!(lines <= 4, "one line for each cause, not {lines}: {log}");
}
