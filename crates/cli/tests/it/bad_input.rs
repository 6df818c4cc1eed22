//! `bad_input_is_answered`: each kind of bad input gets a clear error.

use serde_json::json;

use crate::support::TestDir;

const EXEC_LINE: &str = "{\"argv\":[\"true\"]}\n";

fn submit_lines(dir: &TestDir, input: &[u8]) -> crate::support::CliOutput {
    dir.run_with(&["submit", "exec", "--lines", "-", "--batch", "b", "--json"], input)
}

#[test]
fn arguments_that_make_no_sense_are_answered_like_everything_else() {
    let dir = TestDir::new();
    for (args, error, hint) in [
        (
            &["profile", "add"][..],
            "the following required arguments were not provided: <NAME>",
            "`longshore profile add --help` shows what it takes",
        ),
        (
            &["profile", "add", "x", "--provder", "echo"],
            "unexpected argument '--provder' found",
            "a similar argument exists: '--provider'; `longshore profile add --help` shows what it takes",
        ),
        (
            &["bath", "list"],
            "unrecognized subcommand 'bath'",
            "a similar subcommand exists: 'batch'; `longshore --help` shows what it takes",
        ),
        (
            &["worker", "--log-format", "z"],
            "invalid value 'z' for '--log-format <FORMAT>' [possible values: human, json]",
            "`longshore worker --help` shows what it takes",
        ),
    ] {
        let run = dir.run(args).ends(2);
        assert_eq!(run.err, format!("error: {error}\nhint: {hint}\n"));
        assert_eq!(run.out, "");
    }
}

#[test]
fn wrong_uses_of_scripts_and_pools_say_what_was_meant() {
    let dir = TestDir::new();
    dir.write("ok.sh", "exit 0");
    for (args, error, hint) in [
        (&["submit", "ok.sh"][..], "<PAYLOAD>", "longshore submit --script ok.sh"),
        (
            &["unit", "cancel", "123"],
            "`123` is not the id of a unit",
            "tasks as 12.3, and scripts by their number, are found in a pool: add --dir",
        ),
        (&["submit", "--script", "ok.sh", "--at", "tomorrow"], "`tomorrow` is not a time", "submit --help"),
        (&["submit", "--script", "ok.sh", "--progress"], "--wait", "submit --help"),
        (&["dispatch", "start", "--workers", "-1"], "--workers is -1", "from 0 on"),
        (&["dispatch", "start", "--before", "nofile"], "cannot find --before nofile", "--before"),
    ] {
        let run = dir.run(args);
        assert!(run.code > 0 && run.err.contains(error) && run.err.contains(hint), "{args:?}: {}", run.err);
    }
}

#[test]
fn a_file_that_is_not_there_is_named_with_cause_and_hint() {
    let dir = TestDir::new();
    let missing = "No such file or directory";
    for (args, error, cause, hint) in [
        (
            &["--config", "none.toml", "queue", "list"][..],
            "no configuration file none.toml",
            missing,
            "--config",
        ),
        (
            &["--config", ".", "queue", "list"],
            "no configuration file .",
            "it is not a regular file",
            "--config",
        ),
        (&["dispatch", "start", "--before", "none.sh"], "--before none.sh", missing, "--before names"),
        (&["dispatch", "start", "--root", "none"], "--root none", missing, "--root names"),
        (&["worker", "--server", ".", "--after", "none.sh"], "--after none.sh", missing, "--after names"),
    ] {
        let run = dir.run(args).ends(1).says(error).says(&format!("caused by: {cause}"));
        let hinted = run.err.lines().any(|line| line.starts_with("hint: ") && line.contains(hint));
        assert!(hinted, "{}", run.err);
    }
}

#[test]
fn an_empty_input_is_an_empty_batch() {
    let dir = TestDir::new();
    assert_eq!(submit_lines(&dir, b"").ok().json()["sent"], 0);
    assert_eq!(dir.batch("b")["status"], "complete");
    dir.run(&["batch", "watch", "b"]).ok();
}

#[test]
fn a_bad_line_keeps_what_was_before_it_and_the_batch_goes_on_once_it_is_mended() {
    let dir = TestDir::new();
    for (bad, words) in [(&b"{nonsense"[..], "is not JSON"), (b"\"\xff\"", "is not UTF-8")] {
        let input =
            [EXEC_LINE.as_bytes(), b"\n", EXEC_LINE.as_bytes(), bad, b"\n", EXEC_LINE.as_bytes()].concat();
        submit_lines(&dir, &input).ends(1).says("line 4").says(words).says("hint:");
        let batch = dir.batch("b");
        assert_eq!((&batch["total"], &batch["sealed"]), (&json!(2), &json!(false)));
    }
    let mended = [EXEC_LINE, "\n", EXEC_LINE, EXEC_LINE, EXEC_LINE].concat();
    let run = submit_lines(&dir, mended.as_bytes()).ok().says("resuming batch `b` after line 3");
    assert_eq!(run.json(), json!({ "batch": "b", "sent": 4, "new": 2 }));
}

#[test]
fn a_shorter_input_than_before_is_noticed() {
    let dir = TestDir::new();
    submit_lines(&dir, [EXEC_LINE, EXEC_LINE, "oops\n"].concat().as_bytes()).ends(1);
    submit_lines(&dir, EXEC_LINE.as_bytes()).ends(1).says("2 lines were sent before, this input has 1");
    assert_eq!(dir.batch("b")["sealed"], false);
}

#[test]
fn a_line_that_is_too_long_is_named() {
    let dir = TestDir::new();
    let long = format!("{EXEC_LINE}\"{}\"\n", "x".repeat(17 << 20));
    submit_lines(&dir, long.as_bytes()).ends(1).says("line 2 is longer than 16 MiB");
}

#[test]
fn a_hundred_megabytes_are_too_much_for_a_payload() {
    let dir = TestDir::new();
    let file = std::fs::File::create(dir.path("big.json")).unwrap();
    file.set_len(100 << 20).unwrap();
    dir.run(&["submit", "exec", "@big.json"]).ends(2).says("longer than 16 MiB");
    dir.run_with(&["submit", "exec", "-"], vec![b'1'; 100 << 20]).ends(2).says("16 MiB");
}

#[test]
fn a_payload_that_is_not_json_is_refused_with_its_place() {
    let dir = TestDir::new();
    dir.run(&["submit", "exec", "{\"a\":\n 1,}"]).ends(2).says("line 2 column 4");
    dir.run(&["submit", "exec", ""]).ends(2).says("the payload is empty");
    dir.run(&["submit", "exec", "@nowhere.json"]).ends(1).says("nowhere.json");
    dir.run_with(&["submit", "exec", "-"], b"\xff").ends(2).says("not UTF-8");
}

#[test]
fn a_kind_that_nobody_handles_stays_ready() {
    let dir = TestDir::new();
    let id = dir.run(&["submit", "unheard-of", "1"]).ok().out;
    let other = dir.submit_script("true", &[]);
    let mut worker = dir.start(&["worker", "--slots", "1"]);
    crate::support::eventually(crate::support::TIMEOUT, || {
        (dir.unit(&other)["state"] == "done").then_some(())
    });
    assert_eq!(dir.unit(id.trim())["state"], "ready");
    worker.signal("TERM");
    assert_eq!(worker.ends_within(crate::support::TIMEOUT), 0);
    dir.run(&["worker", "--kind", "unheard-of"]).ends(2).says("no handler for kind `unheard-of`");
}

#[test]
fn usage_errors_end_with_two() {
    let dir = TestDir::new();
    for args in [
        &["frobnicate"][..],
        &["submit"],
        &["submit", "exec"],
        &["submit", "bad kind", "1"],
        &["submit", "exec", "1", "--priority", "10"],
        &["submit", "exec", "1", "--delay", "soon"],
        &["submit", "exec", "--lines", "-", "--wait"],
        &["worker", "--slots", "0"],
        &["unit", "show", "not-an-id"],
        &["queue", "purge"],
        &["--store", "mongo:x", "queue", "list"],
        &["--store", "postgres:x/y", "queue", "list"],
        &["--store", "memory:", "queue", "list"],
    ] {
        let run = dir.run(args).ends(2);
        assert!(run.err.contains("error:"), "{args:?}: {}", run.err);
        assert_eq!(run.out, "", "{args:?}: stdout is for data");
    }
}

#[test]
fn a_store_that_cannot_be_opened_is_explained() {
    let dir = TestDir::new();
    let list = |store: &str| dir.run(&["--store", store, "queue", "list"]);
    list("sqlite:no/such/dir/x.db").ends(1).says("directory no/such/dir does not exist").says("hint:");
    dir.write("text.db", "this is not a database, just some words in a file of text\n".repeat(100));
    list("sqlite:text.db").ends(1).says("text.db").says("hint:");
    list("sqlite:.").ends(2).says("is a directory");
    dir.write("longshore.toml", "store = \"sqlite:elsewhere.db\"\n");
    dir.run(&["queue", "list"]).ok();
    assert!(dir.path("elsewhere.db").exists());
}

#[test]
fn a_read_only_directory_is_explained() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TestDir::new();
    std::fs::create_dir(dir.path("ro")).unwrap();
    std::fs::set_permissions(dir.path("ro"), PermissionsExt::from_mode(0o555)).unwrap();
    if std::fs::write(dir.path("ro/probe"), "").is_ok() {
        // Root may write anywhere, so this uses a path where even root cannot.
        dir.run(&["--store", "sqlite:/proc/x.db", "queue", "list"]).ends(1).says("/proc/x.db");
        return;
    }
    dir.run(&["--store", "sqlite:ro/x.db", "queue", "list"]).ends(1).says("ro/x.db");
}

#[test]
fn what_does_not_exist_is_said_with_a_hint() {
    let dir = TestDir::new();
    let missing = "00000000-0000-7000-8000-000000000000";
    dir.run(&["unit", "show", missing]).ends(1).says("there is no unit").says("hint:");
    dir.run(&["batch", "status", "x"]).ends(1).says("there is no batch `x`").says("hint:");
    dir.run(&["queue", "show", "x"]).ends(1).says("there is no queue `x`").says("hint:");
    dir.run(&["workers", "drain", "abcd"]).ends(1).says("there is no worker").says("hint:");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let dir = TestDir::new();
    dir.submit_script("true", &[]);
    let mut list = dir.command(&["unit", "list"]).spawn().unwrap();
    drop(list.stdout.take());
    assert!(list.wait().unwrap().success());
}

/// An address with no listener.
fn unused_address() -> String {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", gone.local_addr().unwrap())
}

#[test]
fn what_cannot_be_asked_is_refused_with_its_cause_and_what_helps() {
    let dir = TestDir::new();
    dir.run(&["profile", "add", "fast", "--provider", "echo"]).ok();
    let dead = ["profile", "add", "dead", "--provider", "ollama", "--model", "m", "--endpoint"];
    dir.run(&[&dead[..], &[&unused_address()]].concat()).ok();
    for (args, why) in [
        (&["ai", "ask", "--profile", "fast", ""][..], "there is no question"),
        (&["ai", "ask", "--profile", "none", "hi"], "PROFILE_NOT_FOUND"),
        (&["ai", "ask", "--profile", "fast", "--temperature", "9", "hi"], "from 0 to 2"),
        (&["ai", "ask", "--profile", "fast", "--schema", "none.json", "hi"], "none.json"),
        (&["ai", "ask", "--profile", "dead", "--timeout", "2s", "hi"], "no connection"),
        (&["profile", "test", "dead"], "no connection"),
        (&["profile", "add", "x", "--provider", "opnai"], "did you mean `openai`"),
        (&["ai", "estimate", "none.toml"], "there is no such file"),
    ] {
        let run = dir.run(args);
        assert!(run.code > 0, "{args:?}");
        run.says("error:").says(why).says("hint:");
    }
    let ask = ["ai", "ask", "--profile", "fast", "-"];
    let long = "a".repeat(17 << 20);
    let queued = [&ask[..], &["--queue"]].concat();
    dir.run_with(&queued, long).ends(1).says("INVALID_REQUEST").says("hint:");
    dir.run_with(&ask, [b'a', 0xff]).ends(1).says("UTF-8").says("hint:");
}
