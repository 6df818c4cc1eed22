//! `bad_input_is_answered`: whatever is thrown at the binary gets a clear error.

use serde_json::json;

use crate::support::Place;

const LINE: &str = "{\"argv\":[\"true\"]}\n";

fn submit_lines(place: &Place, input: &[u8]) -> crate::support::Run {
    place.run_with(&["submit", "exec", "--lines", "-", "--batch", "b", "--json"], input)
}

#[test]
fn arguments_that_make_no_sense_are_answered_like_everything_else() {
    let place = Place::new();
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
        let run = place.run(args).ends(2);
        assert_eq!(run.err, format!("error: {error}\nhint: {hint}\n"));
        assert_eq!(run.out, "");
    }
}

#[test]
fn an_empty_input_is_an_empty_batch() {
    let place = Place::new();
    assert_eq!(submit_lines(&place, b"").ok().json()["sent"], 0);
    assert_eq!(place.batch("b")["status"], "complete");
    place.run(&["batch", "watch", "b"]).ok();
}

#[test]
fn a_bad_line_keeps_what_was_before_it_and_the_batch_goes_on_once_it_is_mended() {
    let place = Place::new();
    for (bad, words) in [(&b"{nonsense"[..], "is not JSON"), (b"\"\xff\"", "is not UTF-8")] {
        let input = [LINE.as_bytes(), b"\n", LINE.as_bytes(), bad, b"\n", LINE.as_bytes()].concat();
        submit_lines(&place, &input).ends(1).says("line 4").says(words).says("hint:");
        let batch = place.batch("b");
        assert_eq!((&batch["total"], &batch["sealed"]), (&json!(2), &json!(false)));
    }
    let mended = [LINE, "\n", LINE, LINE, LINE].concat();
    let run = submit_lines(&place, mended.as_bytes()).ok().says("resuming batch `b` after line 3");
    assert_eq!(run.json(), json!({ "batch": "b", "sent": 4, "new": 2 }));
}

#[test]
fn a_shorter_input_than_before_is_noticed() {
    let place = Place::new();
    submit_lines(&place, [LINE, LINE, "oops\n"].concat().as_bytes()).ends(1);
    submit_lines(&place, LINE.as_bytes())
        .ends(1)
        .says("2 lines were sent before, this input has 1");
    assert_eq!(place.batch("b")["sealed"], false);
}

#[test]
fn a_line_that_is_too_long_is_named() {
    let place = Place::new();
    let long = format!("{LINE}\"{}\"\n", "x".repeat(17 << 20));
    submit_lines(&place, long.as_bytes()).ends(1).says("line 2 is longer than 16 MiB");
}

#[test]
fn a_hundred_megabytes_are_too_much_for_a_payload() {
    let place = Place::new();
    let file = std::fs::File::create(place.path("big.json")).unwrap();
    file.set_len(100 << 20).unwrap();
    place.run(&["submit", "exec", "@big.json"]).ends(2).says("longer than 16 MiB");
    place.run_with(&["submit", "exec", "-"], vec![b'1'; 100 << 20]).ends(2).says("16 MiB");
}

#[test]
fn a_payload_that_is_not_json_is_refused_with_its_place() {
    let place = Place::new();
    place.run(&["submit", "exec", "{\"a\":\n 1,}"]).ends(2).says("line 2 column 4");
    place.run(&["submit", "exec", ""]).ends(2).says("the payload is empty");
    place.run(&["submit", "exec", "@nowhere.json"]).ends(1).says("nowhere.json");
    place.run_with(&["submit", "exec", "-"], b"\xff").ends(2).says("not UTF-8");
}

#[test]
fn a_kind_that_nobody_handles_stays_ready() {
    let place = Place::new();
    let id = place.run(&["submit", "unheard-of", "1"]).ok().out;
    let other = place.submit_script("true", &[]);
    let mut worker = place.start(&["worker", "--slots", "1"]);
    crate::support::eventually(crate::support::SOON, || {
        (place.unit(&other)["state"] == "done").then_some(())
    });
    assert_eq!(place.unit(id.trim())["state"], "ready");
    worker.signal("TERM");
    assert_eq!(worker.ends_within(crate::support::SOON), 0);
    place.run(&["worker", "--kind", "unheard-of"]).ends(2).says("no handler for kind `unheard-of`");
}

#[test]
fn usage_errors_end_with_two() {
    let place = Place::new();
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
        let run = place.run(args).ends(2);
        assert!(run.err.contains("error:"), "{args:?}: {}", run.err);
        assert_eq!(run.out, "", "{args:?}: stdout is for data");
    }
}

#[test]
fn a_store_that_cannot_be_opened_is_explained() {
    let place = Place::new();
    let list = |store: &str| place.run(&["--store", store, "queue", "list"]);
    list("sqlite:no/such/dir/x.db")
        .ends(1)
        .says("directory no/such/dir does not exist")
        .says("hint:");
    place.write(
        "text.db",
        "this is not a database, just some words in a file of text\n".repeat(100),
    );
    list("sqlite:text.db").ends(1).says("text.db").says("hint:");
    list("sqlite:.").ends(2).says("is a directory");
    place.write("longshore.toml", "store = \"sqlite:elsewhere.db\"\n");
    place.run(&["queue", "list"]).ok();
    assert!(place.path("elsewhere.db").exists());
}

#[test]
fn a_read_only_directory_is_explained() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    std::fs::create_dir(place.path("ro")).unwrap();
    std::fs::set_permissions(place.path("ro"), PermissionsExt::from_mode(0o555)).unwrap();
    if std::fs::write(place.path("ro/probe"), "").is_ok() {
        // Root writes anywhere: a place where even root cannot.
        place.run(&["--store", "sqlite:/proc/x.db", "queue", "list"]).ends(1).says("/proc/x.db");
        return;
    }
    place.run(&["--store", "sqlite:ro/x.db", "queue", "list"]).ends(1).says("ro/x.db");
}

#[test]
fn what_does_not_exist_is_said_with_a_hint() {
    let place = Place::new();
    let nobody = "00000000-0000-7000-8000-000000000000";
    place.run(&["unit", "show", nobody]).ends(1).says("there is no unit").says("hint:");
    place.run(&["batch", "status", "x"]).ends(1).says("there is no batch `x`").says("hint:");
    place.run(&["queue", "show", "x"]).ends(1).says("there is no queue `x`").says("hint:");
    place.run(&["workers", "drain", "abcd"]).ends(1).says("there is no worker").says("hint:");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    place.submit_script("true", &[]);
    let mut list = place.command(&["unit", "list"]).spawn().unwrap();
    drop(list.stdout.take());
    assert!(list.wait().unwrap().success());
}

/// An address where nobody is.
fn nobody() -> String {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", gone.local_addr().unwrap())
}

#[test]
fn what_cannot_be_asked_is_refused_with_its_cause_and_what_helps() {
    let place = Place::new();
    place.run(&["profile", "add", "fast", "--provider", "echo"]).ok();
    let dead = ["profile", "add", "dead", "--provider", "ollama", "--model", "m", "--endpoint"];
    place.run(&[&dead[..], &[&nobody()]].concat()).ok();
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
        let run = place.run(args);
        assert!(run.code > 0, "{args:?}");
        run.says("error:").says(why).says("hint:");
    }
    let ask = ["ai", "ask", "--profile", "fast", "-"];
    let long = "a".repeat(17 << 20);
    let queued = [&ask[..], &["--queue"]].concat();
    place.run_with(&queued, long).ends(1).says("INVALID_REQUEST").says("hint:");
    place.run_with(&ask, [b'a', 0xff]).ends(1).says("UTF-8").says("hint:");
}
