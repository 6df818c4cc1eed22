//! Arrays by number, their tasks as `12.3`, the newest as `last`; and their output.

use std::process::Stdio;

use serde_json::json;

use super::fixture::PoolFixture;
use crate::support::{CliOutput, TIMEOUT, eventually};

#[test]
fn arrays_have_numbers_tasks_are_named_by_them_and_last_is_the_newest() {
    let pool = PoolFixture::start(&["--nthr", "4"]);
    let echo = "echo $LONGSHORE_ARRAY_INDEX; [ $LONGSHORE_ARRAY_INDEX != 7 ]";
    let first = pool.submit("job.sh", echo, &["--array", "1-9", "--name", "first"]);
    let second = pool.submit("job.sh", echo, &["--array", "3-8", "--name", "second"]);
    let (one, two) = (first["number"].as_u64().unwrap(), second["number"].as_u64().unwrap());
    assert!(0 < one && one < two && two < 1000, "{one} {two}");
    pool.wait_until_idle();

    let name = |batch: &str| {
        let status = pool.run(&["batch", "status", batch, "--dir", "pool", "--json"]).ok().json();
        assert_eq!(status["number"], if status["batch"] == "first" { one } else { two });
        status["batch"].as_str().unwrap().to_owned()
    };
    assert_eq!(name(&one.to_string()), "first");
    assert_eq!(name(&two.to_string()), "second");
    assert_eq!(name("last"), "second");
    let list = pool.run(&["batch", "list", "--dir", "pool"]).ok().out;
    assert!(list.trim_start().starts_with("NUMBER"), "{list}");

    // Each command finds a task by its array's name or number.
    let index = |task: &str| {
        let shown = pool.run(&["unit", "show", task, "--dir", "pool", "--json"]).ok().json();
        (shown["batch"].clone(), shown["index"].clone())
    };
    assert_eq!(index(&format!("{one}.3")), (json!("first"), json!(3)));
    assert_eq!(index("second.3"), (json!("second"), json!(3)));
    assert_eq!(index("last.8"), (json!("second"), json!(8)));
    let missing = pool.run(&["unit", "show", "last.9", "--dir", "pool"]);
    assert!(missing.err.contains("array `second` has no task 9"), "{}", missing.err);
    let unknown = pool.run(&["batch", "status", "4711", "--dir", "pool"]);
    assert!(unknown.err.contains("4711"), "{}", unknown.err);
    assert_eq!(pool.run(&["unit", "wait", "last.4", "--dir", "pool"]).ok().out, "4\n");
    assert_eq!(pool.run(&["unit", "wait", "last.7", "--dir", "pool"]).code, 3);
    // LONGSHORE_DISPATCH_DIR names the pool, too.
    assert_eq!(pool.run(&["unit", "explain", "last.7", "--json"]).ok().json()["state"], "failed");
    pool.run(&["unit", "retry", "last.7"]).ok();
    pool.wait_until_idle();
    let shown = pool.run(&["unit", "show", "last.7", "--json"]).ok().json();
    assert_eq!((&shown["state"], &shown["past"].as_array().unwrap().len()), (&json!("failed"), &2));
    let rows = pool.run(&["unit", "list", "--batch", "last", "--json"]).ok().json();
    assert_eq!(rows.as_array().unwrap().len(), 6);
    // A number alone is no unit.
    let wrong = pool.run(&["unit", "cancel", &one.to_string()]);
    assert!(wrong.err.contains(&format!("its tasks are `{one}.1`")), "{}", wrong.err);
    pool.stop();
}

/// Needs root: the command gets a PID namespace of its own, as in a container, in which its session has no id.
#[test]
fn a_command_in_a_container_whose_session_began_outside_submits_and_names_its_last() {
    let pool = PoolFixture::start(&["--nthr", "1"]);
    if !pool.dir.is_root() {
        return pool.stop();
    }
    let inside = |args: &[&str]| {
        let outside = pool.command(args);
        let mut command = std::process::Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(outside.get_program());
        command
            .args(outside.get_args())
            .current_dir(pool.dir.path(""))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for (name, value) in outside.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        CliOutput::of(command.spawn().unwrap())
    };
    let ended = inside(&["submit", "--array", "1-2", "--wait", "--", "echo", "done"]).ok().out;
    assert_eq!(ended, "2 done, 0 failed, 0 cancelled of 2\n");
    assert_eq!(inside(&["batch", "cat", "last"]).ok().out, "done\ndone\n");
    pool.stop();
}

#[test]
fn tasks_of_a_job_file_are_found_by_their_index() {
    let pool = PoolFixture::start(&["--nthr", "2"]);
    pool.dir.write("part.sh", "echo part $LONGSHORE_ARRAY_INDEX");
    pool.dir.write(
        "job.toml",
        "name = \"etl\"\n[[task]]\nid = \"fetch\"\nscript = \"part.sh\"\narray = \"4-6\"\n",
    );
    pool.run(&["submit", "--job", "job.toml", "--wait"]).ok();
    assert_eq!(pool.run(&["batch", "cat", "last.5"]).ok().out, "part 5\n");
    pool.stop();
}

#[test]
fn batch_cat_prints_output_wherever_it_was_kept() {
    let pool = PoolFixture::start(&["--nthr", "2"]);
    let text = "echo out $LONGSHORE_ARRAY_INDEX; sleep 0.1; echo err $LONGSHORE_ARRAY_INDEX >&2";
    let cat = |args: &[&str]| pool.run(&[&["batch", "cat"], args].concat());
    for (name, output) in [
        ("files", ["--output", "files:%i.out", "--stderr", "%i.err"]),
        ("stream", ["--output", "stream:logs", "--crash-limit", "5"]),
    ] {
        let args = [&["--array", "1-3", "--name", name], &output[..]].concat();
        pool.submit("job.sh", text, &args);
        pool.wait_until_idle();
        assert_eq!(cat(&["last", "--stdout"]).ok().out, "out 1\nout 2\nout 3\n", "{name}");
        assert_eq!(cat(&["last", "--stderr"]).ok().out, "err 1\nerr 2\nerr 3\n", "{name}");
        assert_eq!(cat(&[&format!("{name}.2")]).ok().out, "out 2\nerr 2\n", "{name}");
    }
    pool.submit("job.sh", text, &["--array", "1-2", "--name", "tail"]);
    pool.wait_until_idle();
    assert_eq!(cat(&["tail"]).ok().out, "out 1\nerr 1\nout 2\nerr 2\n");
    let mixed = cat(&["tail", "--stderr"]);
    assert!(mixed.code != 0 && mixed.err.contains("kept together"), "{}", mixed.err);
    pool.submit("job.sh", text, &["--array", "1-2", "--name", "none", "--output", "none"]);
    let none = cat(&["none.1"]);
    assert!(none.code != 0 && none.err.contains("discarded"), "{}", none.err);

    // --follow prints what a running script writes, and ends with it. Workers write to a stream in blocks.
    for output in ["files:followed.log", "stream:logs"] {
        let text = "echo one; until [ -e go ]; do sleep 0.05; done; echo two";
        let unit = pool.unit("slow.sh", text, &["--output", output]);
        let follow = ["batch", "cat", &unit, "--follow"];
        let mut command = pool.command(&follow);
        let file = std::fs::File::create(pool.dir.path("followed")).unwrap();
        let mut child = command.stdout(file).spawn().unwrap();
        if output.starts_with("files:") {
            eventually(TIMEOUT, || (pool.dir.read("followed") == "one\n").then_some(()));
        }
        pool.dir.write("go", "");
        assert!(child.wait().unwrap().success());
        assert_eq!(pool.dir.read("followed"), "one\ntwo\n", "{output}");
        std::fs::remove_file(pool.dir.path("go")).unwrap();
    }
    pool.stop();
}
