//! Single scripts, arrays and jobs are all batches, for every command that takes one.

use serde_json::{Value, json};

use super::fixture::{POOL_TIMEOUT, PoolFixture, signal};
use crate::support::{CliOutput, eventually, stretch};

/// `batch status` of what is named.
fn status(pool: &PoolFixture, name: &str) -> Value {
    pool.run(&["batch", "status", name, "--json"]).ok().json()
}

fn counts(batch: &Value) -> [u64; 4] {
    ["total", "done", "failed", "cancelled"].map(|key| batch[key].as_u64().unwrap())
}

#[test]
fn a_single_script_is_a_batch_of_one() {
    let pool = PoolFixture::start(&["--nthr", "2"]);
    let text = "echo said; [ -e mended ]";
    let sent = pool.submit("job.sh", text, &["--name", "nightly"]);
    let (unit, number) = (sent["unit"].as_str().unwrap(), sent["number"].as_u64().unwrap().to_string());
    assert_eq!(sent["batch"], "nightly");
    // Its name, its number, `last` and the unit's id are the same batch.
    for name in ["nightly", &number, "last", unit] {
        assert_eq!(pool.run(&["batch", "watch", name]).code, 3, "{name}");
        let batch = status(&pool, name);
        assert_eq!(counts(&batch), [1, 0, 1, 0], "{name}: {batch}");
        assert_eq!(batch["status"], "complete");
        assert_eq!(pool.run(&["batch", "cat", name]).ok().out, "said\n", "{name}");
        assert_eq!(pool.run(&["unit", "show", name, "--json"]).ok().json()["unit"], unit);
        assert_eq!(pool.run(&["unit", "list", "--batch", name, "--json"]).ok().json()[0]["unit"], unit);
    }
    assert!(pool.run(&["batch", "rows", "nightly", "--failed"]).ok().out.contains("exit-1"));
    pool.dir.write("mended", "");
    assert_eq!(pool.run(&["batch", "retry", "last", "--json"]).ok().json()["batch"], "nightly");
    pool.run(&["batch", "watch", "last"]).ok();
    let again = pool.run(&["batch", "retry", "last"]);
    assert!(again.code == 1 && again.err.contains("is done and cannot be retried"), "{}", again.err);

    // Another with the same name is another batch.
    let gate = "until [ -e go ]; do sleep 0.05; done";
    let other = pool.submit("gate.sh", gate, &["--name", "nightly"]);
    let name = other["batch"].as_str().unwrap();
    assert!(name.starts_with("nightly-"), "{name}");
    assert_eq!(status(&pool, "nightly")["number"].to_string(), number);
    eventually(stretch(POOL_TIMEOUT), || (status(&pool, "last")["status"] == "running").then_some(()));
    let paused = pool.run(&["batch", "pause", "last"]);
    assert!(paused.code == 1 && paused.err.contains("only arrays and jobs are paused"), "{}", paused.err);
    pool.run(&["batch", "cancel", "last"]).ok();
    assert_eq!(pool.run(&["batch", "watch", "last"]).code, 4);

    // One without a name, and an array: each is in the list, the newest first.
    pool.run(&["submit", "--", "true"]).ok();
    pool.run(&["submit", "--array", "1-3", "--name", "three", "--wait", "--", "true"]).ok();
    pool.wait_until_idle();
    let list = pool.run(&["batch", "list", "--json"]).ok().json();
    let found: Vec<_> =
        list.as_array().unwrap().iter().map(|batch| (counts(batch), &batch["status"])).collect();
    let (complete, cancelled) = (&json!("complete"), &json!("cancelled"));
    assert_eq!(
        found,
        [
            ([3, 3, 0, 0], complete),
            ([1, 1, 0, 0], complete),
            ([1, 0, 0, 1], cancelled),
            ([1, 1, 0, 0], complete)
        ]
    );
    let list = pool.run(&["batch", "list", "--status", "cancelled", "--json"]).ok().json();
    assert_eq!(list.as_array().unwrap().len(), 1);
    // A task is a batch of one, too.
    assert_eq!(counts(&status(&pool, "three.2")), [1, 1, 0, 0]);
    pool.stop();
}

#[test]
fn a_repeated_key_makes_no_second_batch() {
    let pool = PoolFixture::start(&["--nthr", "1"]);
    let gate = "until [ -e go ]; do sleep 0.05; done";
    let first = pool.submit("gate.sh", gate, &["--key", "once", "--name", "once"]);
    let second = pool.submit("gate.sh", gate, &["--key", "once", "--name", "once"]);
    assert_eq!((&second["unit"], &second["status"]), (&first["unit"], &json!("existing")));
    assert_eq!(pool.run(&["batch", "list", "--json"]).ok().json().as_array().unwrap().len(), 1);
    pool.dir.write("go", "");
    pool.wait_until_idle();
    pool.stop();
}

const JOB: &str = "
name = 'etl'
[[task]]
id = 'fetch'
script = 'fetch.sh'
array = '4-6%1'
[[task]]
id = 'clean'
script = 'clean.sh'
after = ['fetch']
[[task]]
id = 'load'
script = 'load.sh'
each_line = 'lines'
after = ['clean']
[[task]]
id = 'alone'
script = 'alone.sh'
";

#[test]
fn a_job_is_one_batch_and_its_retry_lets_the_dependants_run() {
    let pool = PoolFixture::start(&["--nthr", "2"]);
    pool.dir.write("job.toml", JOB);
    pool.dir.write("lines", "a\nb\n");
    pool.dir.write(
        "fetch.sh",
        "echo fetch $LONGSHORE_ARRAY_INDEX; [ $LONGSHORE_ARRAY_INDEX != 5 ] || [ -e mended ]",
    );
    pool.dir.write("clean.sh", "echo clean; echo clean >> order");
    pool.dir.write("load.sh", "echo load $LONGSHORE_LINE $LONGSHORE_BATCH; echo load >> order");
    pool.dir.write("alone.sh", "echo alone");
    let sent = pool.run(&["submit", "--job", "job.toml", "--json"]).ok().json();
    let number = sent[0]["number"].as_u64().unwrap().to_string();
    assert_eq!(
        (&sent[0]["batch"], &sent[0]["units"], &sent[0]["unit"]),
        (&json!("etl"), &json!(3), &Value::Null)
    );
    assert_eq!(pool.run(&["batch", "watch", "last"]).code, 3);
    let batch = status(&pool, &number);
    assert_eq!((&batch["batch"], counts(&batch)), (&json!("etl"), [7, 3, 1, 3]), "{batch}");
    let unit = |name: &str| pool.run(&["unit", "show", name, "--json"]).ok().json();
    assert_eq!(
        (&unit("etl.fetch.5")["state"], &unit("etl.fetch.5")["task"]),
        (&json!("failed"), &json!("fetch"))
    );
    assert_eq!(unit(&format!("{number}.clean"))["state"], "cancelled");
    assert_eq!((&unit("last.load.1")["index"], &unit("last.4")["task"]), (&json!(1), &json!("alone")));
    let unknown = pool.run(&["unit", "show", "etl.lod"]);
    assert!(unknown.err.contains("no task lod; it has fetch, "), "{}", unknown.err);
    let array = pool.run(&["unit", "show", "etl.fetch"]);
    assert!(array.err.contains("its scripts are `etl.fetch.1`"), "{}", array.err);

    pool.dir.write("mended", "");
    pool.run(&["batch", "retry", &number]).ok();
    pool.run(&["batch", "watch", &number]).ok();
    assert_eq!(counts(&status(&pool, "etl")), [7, 7, 0, 0]);
    assert_eq!(pool.dir.read("order"), "clean\nload\nload\n");
    let all = "fetch 4\nfetch 5\nfetch 6\nclean\nload a etl\nload b etl\nalone\n";
    let mut said: Vec<String> =
        pool.run(&["batch", "cat", "etl"]).ok().out.lines().map(str::to_owned).collect();
    let mut expected: Vec<&str> = all.lines().collect();
    said.sort_unstable();
    expected.sort_unstable();
    assert_eq!(said, expected);
    assert_eq!(pool.run(&["batch", "cat", "etl.fetch.6"]).ok().out, "fetch 6\n");

    // The same job again is another batch; with a bar, which a log has no room for.
    let again = pool.run(&["submit", "--job", "job.toml", "--wait", "--progress"]).ok();
    assert!(again.out.contains("3 done") && again.err.contains("job etl-"), "{} {}", again.out, again.err);
    pool.stop();
}

#[test]
fn a_job_that_cannot_be_stored_is_not_begun() {
    let pool = PoolFixture::start(&["--nthr", "1"]);
    pool.dir.write("job.sh", "true");
    let many = "[[task]]\nid = 'many'\nscript = 'job.sh'\narray = '1-1001'\n";
    let last = "[[task]]\nid = 'last'\nscript = 'job.sh'\nafter = ['many']\n";
    pool.dir.write("job.toml", format!("{many}{last}"));
    let refused = pool.run(&["submit", "--job", "job.toml"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("task `last` waits for 1001 scripts, of 1000 at most"), "{}", refused.err);
    assert_eq!(pool.run(&["batch", "list", "--json"]).ok().json(), json!([]));
    pool.stop();
}

#[test]
fn tasks_are_found_by_their_own_names_and_wherever_their_output_is() {
    let pool = PoolFixture::start(&["--nthr", "2"]);
    pool.dir.write("job.sh", "echo said $1");
    // In the order of their dependencies, `2` is the first task.
    let one = "[[task]]\nid = '1'\nscript = 'job.sh'\nargs = ['one']\nafter = ['2']\noutput = 'stream:x'\n";
    let two = "[[task]]\nid = '2'\nscript = 'job.sh'\nargs = ['two']\noutput = 'stream:y'\n";
    let none = "[[task]]\nid = 'none'\nscript = 'job.sh'\nargs = ['none']\noutput = 'none'\n";
    pool.dir.write("job.toml", format!("{one}{two}{none}"));
    pool.run(&["submit", "--job", "job.toml", "--wait"]).ok();
    assert_eq!(pool.run(&["batch", "cat", "job.1"]).ok().out, "said one\n");
    assert_eq!(pool.run(&["batch", "cat", "job.2"]).ok().out, "said two\n");
    let all = pool.run(&["batch", "cat", "job"]).ok();
    assert_eq!(all.out, "said two\nsaid one\n");
    assert!(all.err.contains("discarded"), "{}", all.err);
    // A label that is no name of a batch is only a label.
    let labelled = pool.run(&["submit", "--name", "team/build", "--wait", "--", "echo", "built"]);
    assert_eq!(labelled.ok().out, "built\n");
    pool.stop();
}

#[test]
fn a_job_gives_up_after_its_failures_and_a_paused_one_starts_nothing() {
    let pool = PoolFixture::start(&["--nthr", "1"]);
    pool.dir.write("bad.sh", "sleep 0.2; exit 1");
    pool.dir.write("gate.sh", "echo >> gates; until [ -e go ]; do sleep 0.05; done");
    let task = "[[task]]\nid = 'many'\nscript = 'bad.sh'\narray = '1-100'\n";
    pool.dir.write("bad.toml", format!("max_fails = 2\n{task}"));
    assert_eq!(pool.run(&["submit", "--job", "bad.toml", "--wait"]).code, 3);
    let batch = status(&pool, "bad");
    assert_eq!(batch["status"], "failed");
    assert!(batch["failed"].as_u64().unwrap() < 100, "{batch}");
    let wrong = format!("{task}max_fails = 2\n");
    pool.dir.write("wrong.toml", &wrong);
    let refused = pool.run(&["submit", "--job", "wrong.toml"]);
    assert!(refused.code == 2 && refused.err.contains("above the tasks"), "{}", refused.err);

    let two = "[[task]]\nid = 'a'\nscript = 'gate.sh'\n[[task]]\nid = 'b'\nscript = 'gate.sh'\n";
    pool.dir.write("two.toml", two);
    pool.run(&["submit", "--job", "two.toml"]).ok();
    pool.wait_for_lines("gates", 1);
    pool.run(&["batch", "pause", "two"]).ok();
    pool.dir.write("go", "");
    let held = eventually(stretch(POOL_TIMEOUT), || {
        Some(status(&pool, "two")).filter(|batch| batch["done"] == 1 && batch["ready"] == 1)
    });
    assert_eq!(held["status"], "paused");
    assert_eq!(pool.lines("gates").len(), 1);
    pool.run(&["batch", "resume", "two"]).ok();
    pool.run(&["batch", "watch", "two"]).ok();
    pool.stop();
}

#[test]
fn a_pools_queue_is_listed_paused_bounded_and_purged_through_its_server() {
    let pool = PoolFixture::start(&["--nthr", "1"]);
    let gate = "until [ -e go ]; do sleep 0.05; done";
    pool.submit("gate.sh", gate, &["--array", "1-5"]);
    pool.wait_for_status(|status| status["running"] == 1);
    let queues = pool.run(&["queue", "list", "--json"]).ok().json();
    assert_eq!((&queues[0]["queue"], queues.as_array().unwrap().len()), (&json!("default"), 1), "{queues}");
    pool.run(&["queue", "pause", "default", "--dir", "pool"]).ok();
    assert!(pool.run(&["queue", "show", "default"]).ok().out.contains("paused"));
    let set = pool.run(&["queue", "set", "default", "--max-units", "5", "--json"]).ok().json();
    assert_eq!(set[0]["capacity"]["units"], 5, "{set}");
    let full = pool.run(&["submit", "--", "true"]);
    assert_eq!(full.code, 5, "{}", full.err);
    pool.run(&["queue", "set", "default", "--lane", "default", "--cap", "3"]).ok();
    let lane =
        pool.run(&["queue", "set", "default", "--lane", "default", "--cap", "none", "--json"]).ok().json();
    assert_eq!(lane[0]["cap"], Value::Null, "{lane}");
    assert!(pool.run(&["queue", "purge", "default", "--yes"]).ok().out.contains("units cancelled"));
    pool.run(&["queue", "resume", "default"]).ok();
    pool.dir.write("go", "");
    pool.wait_until_idle();
    // What is in a store only says so.
    for args in
        [&["batch", "update", "b", "b.toml"][..], &["batch", "rebind", "b"], &["batch", "compare", "a", "b"]]
    {
        let refused = pool.run(&[args, &["--dir", "pool"]].concat());
        assert!(
            refused.code == 2 && refused.err.contains("batches of rows are in a store"),
            "{}",
            refused.err
        );
    }
    pool.stop();
}

/// Units of an array that takes the server a second or more to store.
const LARGE: u64 = 100_000;

#[test]
fn an_array_is_stored_although_its_client_is_killed_and_continued_if_its_server_is() {
    let pool = PoolFixture::start(&["--nthr", "1"]);
    let range = format!("1-{LARGE}");
    let submit = |more: &[&str]| {
        pool.command(&[&["submit", "--array", &range], more, &["--", "sleep", "60"]].concat())
    };
    let newest = || pool.run(&["batch", "list", "--limit", "1", "--json"]).ok().json()[0].clone();
    let begun = || Some(newest()).filter(|batch| batch["total"].as_u64() > Some(0));
    let whole = |name: &str| {
        let stored = eventually(stretch(POOL_TIMEOUT), || {
            Some(status(&pool, name)).filter(|batch| batch["sealed"] == true)
        });
        assert_eq!(stored["total"], LARGE, "{stored}");
        pool.run(&["batch", "cancel", name]).ok();
    };
    let mut client = submit(&["--name", "client"]).spawn().unwrap();
    eventually(stretch(POOL_TIMEOUT), begun);
    signal(client.id(), "KILL");
    client.wait().unwrap();
    whole("client");

    let server = pool.server_pid();
    let client = submit(&[]).spawn().unwrap();
    eventually(stretch(POOL_TIMEOUT), || begun().filter(|batch| batch["batch"] != "client"));
    signal(server, "KILL");
    let broken = CliOutput::of(client);
    let name = broken.err.split("--name ").nth(1).and_then(|rest| rest.split('`').next());
    let name = name.unwrap_or_else(|| panic!("{}", broken.err)).to_owned();
    assert_eq!(broken.code, 1);
    pool.start_server().ok();
    assert!(status(&pool, &name)["total"].as_u64() < Some(LARGE), "the server was killed too late");
    assert_eq!(CliOutput::of(submit(&["--name", &name]).spawn().unwrap()).code, 0);
    whole(&name);
    pool.run(&["dispatch", "stop", "--now"]).ok();
}
