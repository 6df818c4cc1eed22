//! Threads, memory, GPUs, order and limits, as requested on the command line.

use super::fixture::{POOL_TIMEOUT, PoolFixture, count_lines};
use crate::support::eventually;

/// Records its start and end, with the resources it got.
const RECORD_RUN: &str =
    "echo + $1 $LONGSHORE_RESOURCE_GPU >> notes; sleep 0.1; echo - $1 $LONGSHORE_RESOURCE_GPU >> notes";

/// The peak of the total weight that ran concurrently.
fn peak_weight(notes: &[String], weigh: impl Fn(&str) -> i64) -> i64 {
    let mut now = 0;
    let steps = notes.iter().map(|note| {
        let words: Vec<&str> = note.split(' ').collect();
        now += if words[0] == "+" { weigh(words[1]) } else { -weigh(words[1]) };
        now
    });
    steps.max().unwrap()
}

#[test]
fn threads_and_memory_are_never_given_out_twice() {
    let pool = PoolFixture::start(&["--workers", "2", "--nthr", "4", "--mem", "1000MB"]);
    let args = |nthr: &'static str| ["--array", "1-10", "--output", "none", "--nthr", nthr, "--"];
    for nthr in ["1", "2", "4"] {
        pool.submit("job.sh", RECORD_RUN, &[&args(nthr)[..], &[nthr]].concat());
    }
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&30.into(), &0.into()));
    let most = peak_weight(&pool.lines("notes"), |nthr| nthr.parse().unwrap());
    assert!((4..=8).contains(&most), "{most} of 8 threads");
    // Three scripts of 400 MB do not fit into 1000 MB.
    std::fs::remove_file(pool.dir.path("notes")).unwrap();
    let more = ["--array", "1-12", "--mem", "400MB", "--", "1"];
    pool.submit("job.sh", RECORD_RUN, &more);
    pool.wait_until_idle();
    let most = peak_weight(&pool.lines("notes"), |_| 1);
    assert!((2..=4).contains(&most), "{most} at once on two workers");
    // A script that fits no worker waits and blocks no other.
    pool.submit("job.sh", RECORD_RUN, &["--nthr", "5", "--", "5"]);
    assert_eq!(pool.wait_for("job.sh", RECORD_RUN, &["--", "1"]).0, 0);
    assert_eq!(pool.status()["ready"], 1);
    pool.stop();
}

#[test]
fn a_gpu_belongs_to_one_script_at_a_time() {
    let pool = PoolFixture::start(&["--workers", "1", "--nthr", "8", "--resource", "gpu=3"]);
    let text = "test \"$CUDA_VISIBLE_DEVICES\" = \"$LONGSHORE_RESOURCE_GPU\" || exit 1\n\
                for id in ${LONGSHORE_RESOURCE_GPU//,/ }; do mkdir gpu-$id || exit 2; done\n\
                sleep 0.05; echo $LONGSHORE_RESOURCE_GPU >> used\n\
                for id in ${LONGSHORE_RESOURCE_GPU//,/ }; do rmdir gpu-$id; done";
    pool.submit("one.sh", text, &["--array", "1-20", "--resource", "gpu=1"]);
    pool.submit("two.sh", text, &["--array", "1-10", "--resource", "gpu=2"]);
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&30.into(), &0.into()));
    let used = pool.lines("used");
    let ids: std::collections::BTreeSet<&str> = used.iter().flat_map(|ids| ids.split(',')).collect();
    assert_eq!(ids.into_iter().collect::<Vec<_>>(), ["0", "1", "2"]);
    pool.stop();
}

#[test]
fn a_wide_script_is_not_starved_by_narrow_ones() {
    let pool = PoolFixture::start(&["--workers", "1", "--nthr", "4"]);
    pool.submit("narrow.sh", "echo narrow >> order; sleep 0.1", &["--array", "1-150"]);
    pool.wait_for_lines("order", 4);
    pool.submit("wide.sh", "echo wide >> order", &["--nthr", "4", "--priority", "high"]);
    pool.wait_until_idle();
    let position = pool.lines("order").iter().position(|word| word == "wide").unwrap();
    assert!(position < 120, "the wide script was number {position}");
    pool.stop();
}

#[test]
fn high_overtakes_low_and_after_waits() {
    let pool = PoolFixture::start(&["--workers", "1", "--nthr", "1"]);
    let gate = pool.unit("gate.sh", "until [ -e go ]; do sleep 0.05; done", &[]);
    let word =
        |name: &str, more: &[&str]| pool.unit("say.sh", "echo $1 >> order", &[more, &["--", name]].concat());
    let low: Vec<String> = (0..10).map(|_| word("low", &["--priority", "low"])).collect();
    word("last", &["--after", &low[9], "--priority", "high"]);
    word("normal", &["--after", &gate]);
    word("first", &["--priority", "high"]);
    pool.dir.write("go", "");
    pool.wait_until_idle();
    let order = pool.lines("order");
    let position = |word: &str| order.iter().position(|line| line == word).unwrap();
    // No script is claimed ahead for a worker that runs a slow one, so the order is exact.
    assert_eq!(position("first"), 0, "{order:?}");
    // It is ready only once the gate's end is recorded: one or two others may be quicker.
    assert!(position("normal") <= 2, "{order:?}");
    assert_eq!(position("last"), 12, "{order:?}");
    pool.stop();
}

#[test]
fn an_array_keeps_to_its_limits() {
    let pool = PoolFixture::start(&["--workers", "2", "--nthr", "4"]);
    pool.submit("job.sh", RECORD_RUN, &["--array", "1-40%3", "--", "1"]);
    let status = pool.wait_until_idle();
    assert_eq!(status["done"], 40);
    assert!(peak_weight(&pool.lines("notes"), |_| 1) <= 3);
    // After too many failures the rest is cancelled.
    let more = ["--array", "1-500%2", "--max-fails", "5"];
    pool.submit("bad.sh", "echo x >> bad; exit 1", &more);
    let status = pool.wait_until_idle();
    let failed = status["failed"].as_u64().unwrap();
    assert!((5..=10).contains(&failed), "{status}");
    assert_eq!(failed + status["cancelled"].as_u64().unwrap(), 500);
    pool.stop();
}

#[test]
fn a_bad_end_is_repeated_as_often_as_was_asked() {
    let pool = PoolFixture::start(&["--workers", "1", "--nthr", "4"]);
    let text = "echo $LONGSHORE_ARRAY_INDEX >> runs; [ $LONGSHORE_ATTEMPT -ge $LONGSHORE_ARRAY_INDEX ]";
    pool.submit("job.sh", text, &["--array", "1-3", "--retries", "1"]);
    let ended = |status: &serde_json::Value| status["done"] == 2 && status["failed"] == 1;
    eventually(POOL_TIMEOUT, || ended(&pool.status()).then_some(()));
    let ran = pool.lines("runs");
    let counts = count_lines(&ran);
    assert_eq!((counts["1"], counts["2"], counts["3"]), (1, 2, 2));
    pool.stop();
}
