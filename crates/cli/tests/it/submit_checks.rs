//! What is checked and said when units are submitted and retried.

use serde_json::json;

use crate::support::{TIMEOUT, TestDir};

fn lines(count: u64) -> String {
    // A blank line is no payload, but counts as a line.
    (1..=count).map(|number| format!("{{\"argv\":[\"true\"],\"stdin\":\"{number}\"}}\n\n")).collect()
}

#[test]
fn a_batch_of_lines_larger_than_its_queue_waits_for_room_and_is_sent_whole() {
    let dir = TestDir::new();
    dir.run(&["queue", "set", "bq", "--max-units", "100"]).ok();
    let mut worker = dir.start(&["worker", "--slots", "8", "--queue", "bq", "--kind", "exec"]);
    let args = ["submit", "exec", "--queue", "bq", "--lines", "-", "--batch", "many", "--json"];
    let sent = dir.run_with(&args, lines(350)).ok().json();
    assert_eq!((&sent["sent"], &sent["new"]), (&json!(350), &json!(350)), "{sent}");
    let again = dir.run_with(&args, lines(350)).ok().json();
    assert_eq!((&again["sent"], &again["new"]), (&json!(350), &json!(0)), "{again}");
    dir.run(&["batch", "watch", "many", "--limit", "60s"]).ok();
    assert_eq!(dir.batch("many")["done"], 350);
    worker.signal("TERM");
    worker.ends_within(TIMEOUT);
}

#[test]
fn a_command_that_cannot_be_run_is_refused_when_it_is_submitted() {
    let dir = TestDir::new();
    let submit = ["submit", "exec"];
    for (payload, why) in [
        (r#"{"argv":"ls"}"#, "is not an exec payload: invalid type: string"),
        (r#"{"argv":["ls"],"timeuot":3}"#, "unknown field `timeuot`"),
        (r#"{"argv":[]}"#, "`argv` names no program"),
    ] {
        dir.run(&[submit.as_slice(), &[payload]].concat()).ends(2).says(why);
    }
    let args = ["submit", "exec", "--lines", "-", "--batch", "b"];
    let bad = format!("{}{{\"argv\":7}}\n", lines(2));
    dir.run_with(&args, bad).ends(1).says("line 5").says("is not an exec payload");
    dir.run(&[submit.as_slice(), &[r#"{"argv":["true"]}"#]].concat()).ok();
    assert_eq!(dir.units("ready").len(), 3);
}

#[test]
fn a_retry_says_what_it_did_on_a_cancelled_batch_too() {
    let dir = TestDir::new();
    let args = ["submit", "exec", "--lines", "-", "--batch", "b"];
    dir.run_with(&args, lines(3)).ok();
    dir.run(&["batch", "cancel", "b"]).ok();
    let said = dir.run(&["batch", "retry", "b"]).ok();
    assert_eq!(
        said.out,
        "batch `b` has no failed units: nothing is retried; 3 cancelled units stay cancelled\n"
    );
    said.says("hint: ");
    let json = dir.run(&["batch", "retry", "b", "--json"]).ok().json();
    assert_eq!(
        (&json["retried"], &json["cancelled"], &json["status"]),
        (&json!(0), &json!(3), &json!("cancelled"))
    );

    let failing = "{\"argv\":[\"false\"]}\n{\"argv\":[\"true\"]}\n";
    let args = ["submit", "exec", "--lines", "-", "--batch", "c", "--max-attempts", "1"];
    dir.run_with(&args, failing).ok();
    dir.work();
    let said = dir.run(&["batch", "retry", "c"]).ok();
    assert_eq!(said.out, "batch `c` is running: 1 failed units run again\n");
}
