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

#[test]
fn scripts_share_a_gpu_by_fractions_and_none_is_put_together_from_two() {
    let pool = PoolFixture::start(&["--workers", "1", "--nthr", "8", "--resource", "gpu=2"]);
    let text = "test \"$CUDA_VISIBLE_DEVICES\" = \"$LONGSHORE_RESOURCE_GPU\" || exit 1\n\
                echo + $LONGSHORE_RESOURCE_GPU >> notes; sleep 0.2; echo - $LONGSHORE_RESOURCE_GPU >> notes";
    for (fraction, at_once) in [("0.5", 2), ("0.6", 1), ("0.25", 4)] {
        pool.submit("share.sh", text, &["--array", "1-12", "--resource", &format!("gpu={fraction}")]);
        let status = pool.wait_until_idle();
        assert_eq!(&status["failed"], &0, "{status}");
        let notes = pool.lines("notes");
        let peaks = ["0", "1"].map(|gpu| peak_weight(&notes, |used| i64::from(used == gpu)));
        assert_eq!(peaks, [at_once, at_once], "{fraction}: {notes:?}");
        std::fs::remove_file(pool.dir.path("notes")).unwrap();
    }
    let hold = "touch began; until [ -e go ]; do sleep 0.05; done";
    let holder = pool.unit("hold.sh", hold, &["--resource", "gpu=1.5"]);
    eventually(POOL_TIMEOUT, || pool.dir.path("began").exists().then_some(()));
    let waiting = pool.unit("next.sh", "true", &["--resource", "gpu=0.75"]);
    let explained = pool.run(&["unit", "explain", &waiting, "--json"]).ok().json();
    assert_eq!(explained["request"]["resources"], serde_json::json!({ "gpu": 0.75 }));
    let why =
        serde_json::json!([{ "obstacle": "resource", "name": "gpu", "needs": 0.75, "has": 2, "free": 0.5 }]);
    assert_eq!(explained["workers"][0]["obstacles"], why);
    let shown = pool.run(&["unit", "show", &holder]).ok().out;
    assert!(shown.contains("1 thread, 1.5 gpu"), "{shown}");
    pool.dir.write("go", "");
    assert_eq!(pool.wait_until_idle()["failed"], 0);
    pool.run(&["submit", "--resource", "gpu=0.125", "--", "true"]).ends(2).says("two decimals");
    pool.stop();
}

#[test]
fn a_pinned_script_has_processors_of_its_own() {
    let cores = std::thread::available_parallelism().unwrap().to_string();
    let pool = PoolFixture::start(&["--workers", "1", "--nthr", &cores]);
    let text = "allowed=$(grep Cpus_allowed_list /proc/self/status | cut -f2)\n\
                echo \"$1 $allowed $LONGSHORE_CPUS $OMP_PLACES\" >> seen\n\
                echo + $allowed >> notes; sleep 0.1; echo - $allowed >> notes";
    pool.submit("pin.sh", text, &["--pin", "--array", "1-8", "--", "pinned"]);
    assert_eq!(pool.wait_until_idle()["failed"], 0);
    let seen = pool.lines("seen");
    let cpus: std::collections::BTreeSet<&str> =
        seen.iter().map(|line| line.split(' ').nth(1).unwrap()).collect();
    for cpu in &cpus {
        assert!(seen.iter().any(|line| *line == format!("pinned {cpu} {cpu} {{{cpu}}}")), "{seen:?}");
        assert_eq!(peak_weight(&pool.lines("notes"), |allowed| i64::from(allowed == *cpu)), 1);
    }
    assert_eq!(cpus.len(), cores.parse::<usize>().unwrap().min(8), "{seen:?}");
    // All of them for one script, and for one that is not pinned.
    let all = std::fs::read_to_string("/proc/self/status").unwrap();
    let all = all.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t")).unwrap().to_owned();
    for more in [&["--pin", "--nthr", &cores][..], &[]] {
        assert_eq!(pool.wait_for("wide.sh", &format!("grep -q 'list:.{all}$' /proc/self/status"), more).0, 0);
    }
    pool.stop();

    // With more threads than processors, pinned scripts wait for each other, not for others.
    let wide = (cores.parse::<u32>().unwrap() + 1).to_string();
    let pool = PoolFixture::start(&["--workers", "1", "--nthr", &wide]);
    let hold = "touch began; until [ -e go ]; do sleep 0.05; done";
    let holder = pool.unit("hold.sh", hold, &[]);
    eventually(POOL_TIMEOUT, || pool.dir.path("began").exists().then_some(()));
    pool.submit(
        "pin.sh",
        "sleep 0.1; grep -q 'list:.[0-9]*$' /proc/self/status",
        &["--pin", "--array", "1-6"],
    );
    assert_eq!(pool.wait_for("wide.sh", "true", &["--pin", "--nthr", &cores]).0, 0);
    pool.dir.write("go", "");
    pool.run(&["unit", "wait", &holder]).ok();
    assert_eq!(pool.wait_until_idle()["failed"], 0);
    let (_, refused) = pool.wait_for("wide.sh", "true", &["--pin", "--nthr", &wide]);
    let why = refused["failure"]["message"].as_str().unwrap();
    assert!(why.contains("cannot have processors of their own: the worker has fewer"), "{why}");
    pool.stop();
}

#[test]
fn libraries_use_the_threads_that_were_requested_unless_the_user_says_otherwise() {
    let pool = PoolFixture::start(&["--workers", "1", "--nthr", "4"]);
    let text = "echo $OMP_NUM_THREADS $MKL_NUM_THREADS $OPENBLAS_NUM_THREADS >> seen";
    assert_eq!(pool.wait_for("job.sh", text, &["--nthr", "3"]).0, 0);
    assert_eq!(pool.wait_for("job.sh", text, &["--nthr", "3", "--env", "OMP_NUM_THREADS=7"]).0, 0);
    assert_eq!(pool.lines("seen"), ["3 3 3", "7 3 3"]);
    pool.stop();
}

#[test]
fn a_worker_offers_what_its_machine_has_and_names_the_gpus_that_it_was_given() {
    let pool = PoolFixture::start(&["--workers", "1", "--nthr", "1"]);
    let start = |args: &[&str], visible: &str| {
        let mut worker = pool.command(&[&["worker", "--server", "pool", "--nthr", "2"], args].concat());
        crate::support::ChildGuard(worker.env("CUDA_VISIBLE_DEVICES", visible).spawn().unwrap())
    };
    let resources = |count: usize| {
        pool.wait_for_workers(count);
        let all = pool.run(&["dispatch", "worker", "list", "--json"]).ok().json();
        all.as_array().unwrap().last().unwrap()["resources"].clone()
    };
    let mut detecting = start(&[], "3,GPU-a1");
    let found = resources(2);
    assert_eq!(found["gpu"], serde_json::json!([2, 2]));
    assert!(found["mem"][0].as_u64().unwrap() > 100, "{found}");
    let text = "echo $CUDA_VISIBLE_DEVICES $LONGSHORE_RESOURCE_MEM >> seen";
    assert_eq!(pool.wait_for("two.sh", text, &["--resource", "gpu=2", "--mem", "50MiB"]).0, 0);
    assert_eq!(pool.lines("seen"), ["3,GPU-a1 50"]);
    detecting.signal("TERM");
    detecting.ends_within(POOL_TIMEOUT);

    let mut told = start(&["--no-detect", "--resource", "gpu=[5]", "--mem", "1GiB"], "3,GPU-a1");
    assert_eq!(resources(2), serde_json::json!({ "gpu": [1, 1], "mem": [1024, 1024] }));
    assert_eq!(pool.wait_for("one.sh", text, &["--resource", "gpu=0.5"]).0, 0);
    assert_eq!(pool.lines("seen")[1].trim(), "5");
    told.signal("TERM");
    told.ends_within(POOL_TIMEOUT);
    pool.stop();
}
