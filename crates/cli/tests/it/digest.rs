//! `longshore mail digest`: one message per user and period despite crashes, and no faster than pages
//! are rendered.

use std::collections::BTreeSet;
use std::time::Duration;

use longshore_sqlite::rusqlite::Connection;

use crate::batch_examples::copy_example;
use crate::slow_renderer::SlowRenderer;
use crate::support::{TestDir, eventually};

const MAX_WAIT: Duration = Duration::from_secs(120);
const DATABASE: &str = "digest/neighbours.db";

/// The files of a folder; empty if there is no folder.
fn files(dir: &TestDir, folder: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir.path(folder)) else { return Vec::new() };
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().display().to_string();
    entries.map(name).collect()
}

/// The recipients of the messages in `out`, sorted.
fn recipients(dir: &TestDir) -> Vec<String> {
    let mut all = Vec::new();
    for name in files(dir, "out").iter().filter(|name| name.ends_with(".eml")) {
        let text = dir.read(&format!("out/{name}"));
        let to = text.lines().find_map(|line| line.strip_prefix("To: ")).expect("a To header");
        all.push(to.rsplit('<').next().unwrap().trim_end_matches('>').to_owned());
    }
    all.sort();
    all
}

fn query_number(dir: &TestDir, sql: &str) -> i64 {
    let db = Connection::open(dir.path(DATABASE)).unwrap();
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn execute(dir: &TestDir, sql: &str) {
    Connection::open(dir.path(DATABASE)).unwrap().execute_batch(sql).unwrap();
}

fn digest_args<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["mail", "digest", "digest"], more].concat()
}

#[test]
fn the_example_writes_to_each_member_once_and_the_second_time_to_nobody() {
    let dir = copy_example("digest");
    dir.run(&digest_args(&["--folder", "out"])).ok().says("144 messages written to out");
    let all = recipients(&dir);
    assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (144, 144));
    dir.run(&digest_args(&["--folder", "out"])).ok().says("no recipient is due");
    dir.run(&digest_args(&["--mode", "immediate", "--folder", "out"])).ok().says("27 messages");
    dir.run(&digest_args(&["--mode", "immediate"])).ok().says("no recipient is due");
    execute(
        &dir,
        "INSERT INTO posts SELECT 100, NULL, kind, subject, place, 1, words, picture FROM posts WHERE id = 5",
    );
    dir.run(&digest_args(&["--folder", "out"])).ok().says("no recipient is due");
    let run = dir.run(&digest_args(&["--mode", "immediate", "--folder", "out"])).ok();
    run.says("3 messages written to out");
    assert_eq!(query_number(&dir, "SELECT sum(sent) FROM digests WHERE mode = 'daily'"), 144);
    dir.run(&["--store", &format!("sqlite:{DATABASE}"), "verify"]).ok();
}

#[test]
fn what_members_say_is_text_and_what_came_twice_is_told_once() {
    let dir = copy_example("digest");
    let run = dir.run(&digest_args(&["--dry-run"])).ok();
    assert!(run.out.contains("rows       144"), "{}", run.out);
    assert!(run.out.contains("Sofa &lt;three seats&gt;"), "{}", run.out);
    assert!(files(&dir, "spool").is_empty(), "a dry run keeps nothing");
    dir.run(&digest_args(&["--limit", "10"])).ok();
    assert_eq!(files(&dir, "spool/pending").len(), 10);
    // Twelve posts of each place; in Mill Lane six were posted twice.
    let posts = "SELECT count(*) FROM posts WHERE place = 'Mill Lane' AND author_id <> 3";
    assert_eq!(query_number(&dir, posts), 12);
    let run = dir.run(&digest_args(&["--dry-run", "--mod", "200", "--val", "3", "--json"])).ok();
    assert_eq!(run.json()["count"], 0, "member 3 is among the first ten");
    let run = dir.run(&digest_args(&["--dry-run", "--mod", "200", "--val", "13"])).ok();
    assert!(run.out.contains("subject: 6 new near Mill Lane"), "{}", run.out);
}

#[test]
fn shares_are_apart_and_together_they_are_all() {
    let dir = copy_example("digest");
    for (val, more) in [("0", 80), ("1", 64)] {
        let before = files(&dir, "spool/pending").len();
        dir.run(&digest_args(&["--mod", "2", "--val", val])).ok();
        // Every tenth member is away, and has an even id.
        assert_eq!(files(&dir, "spool/pending").len() - before, 144 - more, "{val}");
    }
    dir.run(&digest_args(&["--mod", "2"])).ends(2).says("--val");
}

#[test]
fn one_that_is_killed_and_run_again_leaves_one_file_per_member() {
    let dir = copy_example("digest");
    // A new run waits for the dead sessions' TTL.
    dir.write("longshore.toml", "[worker]\nttl = \"1s\"\n");
    for kill in 1..5 {
        let mut running = dir.start(&digest_args(&["--folder", "out", "--workers", "4"]));
        eventually(MAX_WAIT, || {
            let there = files(&dir, "spool/keys").len() >= kill * 25;
            (there || running.0.try_wait().unwrap().is_some()).then_some(())
        });
        running.kill();
    }
    dir.run(&digest_args(&["--folder", "out"])).ok();
    let all = recipients(&dir);
    assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (144, 144));
    assert_eq!(query_number(&dir, "SELECT count(*) FROM digests WHERE sent = 1"), 144);
    dir.run(&["--store", &format!("sqlite:{DATABASE}"), "verify"]).ok();
}

#[test]
fn the_tracker_moves_to_what_is_in_the_message_that_is_kept_and_no_further() {
    let dir = copy_example("digest");
    dir.run(&digest_args(&["--mod", "200", "--val", "3"])).ok();
    let last = query_number(&dir, "SELECT last_post FROM digests WHERE member_id = 3");
    // As if the process had died before it recorded the row's end, and a post arrived meanwhile.
    execute(&dir, "DELETE FROM digests");
    execute(
        &dir,
        "INSERT INTO posts SELECT 100, NULL, kind, 'Late', place, 8, words, picture FROM posts WHERE id = 3",
    );
    dir.run(&digest_args(&["--mod", "200", "--val", "3"])).ok();
    assert_eq!(files(&dir, "spool/keys").len(), 1, "the same message");
    assert_eq!(query_number(&dir, "SELECT last_post FROM digests WHERE member_id = 3"), last);
    // The late post is in the next message.
    execute(&dir, "UPDATE digests SET day = '2020-01-01'");
    std::fs::remove_dir_all(dir.path("spool")).unwrap();
    let run = dir.run(&digest_args(&["--dry-run", "--mod", "200", "--val", "3"])).ok();
    assert!(run.out.contains("subject: 1 new near Mill Lane"), "{}", run.out);
}

#[test]
fn a_daemon_writes_to_whoever_becomes_due_and_ends_when_told() {
    let dir = copy_example("digest");
    let mode = ["--mode", "immediate", "--daemon", "--every", "50ms", "--folder", "out"];
    let mut running = dir.start(&digest_args(&mode));
    eventually(MAX_WAIT, || (recipients(&dir).len() == 27).then_some(()));
    execute(
        &dir,
        "INSERT INTO posts SELECT 100, NULL, kind, 'Late', place, 1, words, picture FROM posts WHERE id = 5",
    );
    eventually(MAX_WAIT, || (recipients(&dir).len() == 30).then_some(()));
    running.signal("TERM");
    assert_eq!(running.ends_within(MAX_WAIT), 0);
}

#[test]
fn one_that_was_left_is_ended_as_its_own_days_also_on_the_next() {
    let dir = copy_example("digest");
    dir.write("longshore.toml", "[worker]\nttl = \"1s\"\n");
    let file = dir.read("digest/batch.toml");
    let move_to = |zone: &str| {
        let zone = format!("[mail]\nzone = \"{zone}\"\n");
        dir.write("digest/batch.toml", file.replace("[mail]\n", &zone));
    };
    move_to("Pacific/Pago_Pago");
    let mut running = dir.start(&digest_args(&["--workers", "1"]));
    eventually(MAX_WAIT, || (files(&dir, "spool/keys").len() >= 5).then_some(()));
    running.kill();
    assert!(files(&dir, "spool/keys").len() < 144, "it was killed too late");
    // This zone never has the same day as the other.
    move_to("Pacific/Kiritimati");
    dir.run(&digest_args(&[])).ok().says("resuming batch");
    assert_eq!(files(&dir, "spool/keys").len(), 144);
    assert_eq!(query_number(&dir, "SELECT count(DISTINCT day) FROM digests"), 1);
}

#[test]
fn a_day_is_that_of_the_files_zone() {
    let dir = copy_example("digest");
    let file = dir.read("digest/batch.toml");
    let (mut kept, mut post) = (0, 100);
    // These two zones never have the same day.
    for zone in ["Pacific/Pago_Pago", "Pacific/Kiritimati"] {
        let zone = format!("[mail]\nzone = \"{zone}\"\n");
        dir.write("digest/batch.toml", file.replace("[mail]\n", &zone));
        dir.run(&digest_args(&["--mod", "200", "--val", "3"])).ok();
        kept += 1;
        assert_eq!(files(&dir, "spool/keys").len(), kept, "{zone}");
        let more = "kind, subject, place, 8, words, picture FROM posts WHERE id = 3";
        execute(&dir, &format!("INSERT INTO posts SELECT {post}, NULL, {more}"));
        post += 1;
        dir.run(&digest_args(&["--mod", "200", "--val", "3"])).ok().says("no recipient is due");
    }
}

#[test]
fn mistakes_are_told_before_anybody_is_written_to() {
    let dir = copy_example("digest");
    let file = dir.read("digest/batch.toml");
    for (wrong, says) in [
        (file.replace("last = \"id\"", "last = \"idd\""), "there is no column `idd`"),
        (file.replace("near {{ place }}\"", "near {{ plaice }}\""), "`plaice`, which is not there"),
        (file.replace("from = ", "form = "), "unknown key `form` in [mail]"),
        (file.replace("mode = \"daily\"", "mode = \"weekly\""), "`weekly` is not a value"),
        (file.clone() + "[ai]\nprofile = \"echo\"\n", "exclude each other"),
        (file.replace("[mail]\n", "[mail]\nzone = \"Vienna\"\n"), "there is no time zone `Vienna`"),
        (file.replace(":last,", ":latest,"), "unknown parameter `:latest`"),
    ] {
        assert_ne!(wrong, file);
        dir.write("digest/batch.toml", &wrong);
        dir.run(&digest_args(&[])).ends(1).says(says);
    }
    dir.write("digest/batch.toml", file.replace("[mail]\n", "[mail]\npool = \"digest\"\n"));
    dir.run(&digest_args(&[])).ends(2).says("the size of pool `digest` is unknown");
    dir.write("digest/batch.toml", &file);
    let page = dir.read("digest/digest.mjml").replace("mj-divider", "mj-dividr");
    dir.write("digest/digest.mjml", page);
    // The dry run, which a deployment uses as its gate, reports the error before any row runs.
    let run = dir.run(&digest_args(&["--dry-run"])).ends(3);
    assert!(run.out.contains("MJML_ERROR") && run.out.contains("mj-dividr"), "{}", run.out);
    dir.run(&digest_args(&["--limit", "2"])).ends(3);
    let run = dir.run(&["--store", &format!("sqlite:{DATABASE}"), "unit", "list"]).ok();
    assert!(run.out.contains("mjml-error"), "{}", run.out);
}

#[test]
fn digests_slow_down_with_a_slow_renderer_instead_of_piling_up() {
    let dir = copy_example("digest");
    let renderer = SlowRenderer::start("<html><body>page</body></html>".to_owned(), Duration::ZERO);
    let port = renderer.port;
    let config = format!(
        "[pools.mjml]\nmax = 2\n[pools.digest]\nmax = 3\n\
         [mail]\nrenderer = \"http://127.0.0.1:{port}/\"\npool = \"mjml\"\n\
         render_timeout = \"10m\"\n"
    );
    dir.write("longshore.toml", config);
    let file =
        dir.read("digest/batch.toml").replace("[mail]\n", "[mail]\npool = \"digest\"\ntimeout = \"10m\"\n");
    dir.write("digest/batch.toml", file);
    let mut running = dir.start(&digest_args(&["--workers", "8"]));
    eventually(MAX_WAIT, || (renderer.in_flight() == 2).then_some(()));
    let store = format!("sqlite:{DATABASE}");
    let batch = || dir.run(&["--store", &store, "batch", "list", "--json"]).ok().json();
    // Eight workers hold a row each, and no message exists beyond the permits.
    let held = eventually(MAX_WAIT, || {
        let held = batch()[0]["leased"].as_u64().unwrap();
        (held >= 8).then_some(held)
    });
    assert_eq!(held, 8);
    assert_eq!(files(&dir, "spool/keys").len(), 0);
    let pools = dir.run(&["pool", "status", "--json"]).ok().json();
    for (name, most) in [("mjml", 2), ("digest", 3)] {
        let pool = pools.as_array().unwrap().iter().find(|pool| pool["pool"] == name).expect(name);
        assert_eq!(pool["in_use"], most, "{pools}");
    }
    // Any number: a request that timed out is sent again.
    renderer.allow(usize::MAX / 2);
    assert_eq!(running.ends_within(MAX_WAIT), 0);
    assert_eq!(renderer.max_in_flight(), 2, "bounded by the permits");
    assert_eq!(files(&dir, "spool/pending").len(), 144);
}

#[test]
fn who_cannot_be_written_to_is_tried_once_a_day_and_keeps_nobody_waiting() {
    let dir = copy_example("digest");
    // The database is created with its rows; then a hundred members lose their address.
    dir.run(&digest_args(&["--limit", "1"])).ok();
    execute(&dir, "UPDATE members SET email = 'nowhere' WHERE id BETWEEN 2 AND 101");
    let bad = query_number(&dir, "SELECT count(*) FROM members WHERE id BETWEEN 2 AND 101 AND id % 10 <> 0");
    let file = dir.read("digest/batch.toml");
    let move_to = |zone: &str| {
        let zone = format!("[mail]\nzone = \"{zone}\"\n");
        dir.write("digest/batch.toml", file.replace("[mail]\n", &zone));
    };
    let failed = "SELECT count(*) FROM digests WHERE failed = 'MAIL_ERROR' AND sent = 0";
    let days = "SELECT count(DISTINCT day) FROM digests WHERE sent > 0";
    move_to("Pacific/Pago_Pago");
    execute(&dir, "DELETE FROM digests");
    let mut running = dir.start(&digest_args(&["--daemon", "--every", "50ms"]));
    eventually(MAX_WAIT, || (query_number(&dir, failed) == bad).then_some(()));
    eventually(MAX_WAIT, || (query_number(&dir, "SELECT count(*) FROM digests") == 144).then_some(()));
    let tried = query_number(&dir, "SELECT count(*) FROM digests WHERE last_post = 0");
    assert_eq!(tried, bad, "trackers of members without a message stay");
    let more = "SELECT 100, NULL, kind, 'Late', place, 1, words, picture FROM posts WHERE id IN (5)";
    execute(&dir, &format!("INSERT INTO posts {more}"));
    // These two zones never have the same day.
    move_to("Pacific/Kiritimati");
    eventually(MAX_WAIT, || (query_number(&dir, days) == 2).then_some(()));
    let today = format!("{failed} AND day = (SELECT max(day) FROM digests)");
    eventually(MAX_WAIT, || (query_number(&dir, &today) == bad).then_some(()));
    running.signal("TERM");
    assert_eq!(running.ends_within(MAX_WAIT), 0);
    let store = format!("sqlite:{DATABASE}");
    let batches = dir.run(&["--store", &store, "batch", "list", "--json"]).ok().json();
    let batches = batches.as_array().unwrap();
    assert!(batches.iter().all(|batch| batch["status"] == "complete"), "{batches:?}");
    let failures: i64 = batches.iter().map(|batch| batch["failed"].as_i64().unwrap()).sum();
    assert_eq!(failures, 2 * bad, "one failure per member and day");
}

#[test]
fn a_batch_that_stands_still_keeps_its_own_rows_and_nobody_elses() {
    let dir = copy_example("digest");
    let file = dir.read("digest/batch.toml");
    let limit = format!("{file}\n[failures]\nlimit = 1\n");
    dir.write("digest/batch.toml", &limit);
    dir.run(&digest_args(&["--limit", "1"])).ok();
    execute(&dir, "DELETE FROM digests; UPDATE members SET email = 'nowhere' WHERE id = 1");
    dir.write("digest/batch.toml", limit.replace("workers = 64", "workers = 1"));
    execute(&dir, "UPDATE members SET wants = 'nothing' WHERE id > 9");
    std::fs::remove_dir_all(dir.path("spool")).unwrap();
    dir.run(&digest_args(&[])).ends(4).says("threshold");
    let before = files(&dir, "spool/keys").len();
    assert!(before < 8, "the batch was paused with rows left");
    execute(&dir, "UPDATE members SET wants = 'daily' WHERE id IN (11, 12)");
    let store = format!("sqlite:{DATABASE}");
    let batches = || {
        let list = dir.run(&["--store", &store, "batch", "list", "--json"]).ok().json();
        list.as_array().unwrap().len()
    };
    let run = dir.run(&digest_args(&[])).ends(4);
    run.says("is paused").says("all others are written to");
    assert_eq!(files(&dir, "spool/keys").len(), before + 2, "the two others have theirs");
    // Only rows of the paused batch are due: a daemon finds that out once.
    let known = batches();
    let mut running = dir.start(&digest_args(&["--daemon", "--every", "1ms"]));
    eventually(MAX_WAIT, || (batches() > known).then_some(()));
    execute(&dir, "UPDATE members SET wants = 'daily' WHERE id = 13");
    eventually(MAX_WAIT, || (files(&dir, "spool/keys").len() == before + 3).then_some(()));
    running.signal("TERM");
    assert_eq!(running.ends_within(MAX_WAIT), 0);
    assert!(batches() <= known + 3, "{} of {known}", batches());
}

#[test]
fn with_a_folder_it_takes_its_own_messages_and_leaves_those_of_others() {
    let dir = copy_example("digest");
    dir.write("page.html", "<p>hello</p>");
    let put = ["mail", "spool", "page.html", "--key", "welcome/1", "--from", "a@example.org"];
    dir.run(&[&put[..], &["--to", "b@example.org", "--subject", "s"]].concat()).ok();
    dir.run(&digest_args(&["--mode", "immediate"])).ok();
    let run = dir.run(&digest_args(&["--limit", "5", "--folder", "out"])).ok();
    run.says("5 messages written to out").says("28 other due messages stay in the spool");
    assert_eq!(recipients(&dir).len(), 5);
    assert_eq!(files(&dir, "spool/pending").len(), 28);
}

#[test]
fn names_are_quoted_and_what_has_no_room_is_counted() {
    let dir = copy_example("digest");
    dir.run(&digest_args(&["--limit", "1"])).ok();
    execute(&dir, "UPDATE members SET name = 'Ann \"the quick\" \\' WHERE id = 3");
    let more = "WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 127)
        INSERT INTO posts SELECT i, NULL, kind, 'Late ' || i, place, 8, words, picture
        FROM n, posts WHERE posts.id = 3";
    execute(&dir, more);
    let run = dir.run(&digest_args(&["--mod", "200", "--val", "3", "--dry-run"])).ok();
    assert!(run.out.contains(r#"to: "Ann \"the quick\" \\" <member3@"#), "{}", run.out);
    assert!(run.out.contains("And 10 more"), "{}", run.out);
    dir.run(&digest_args(&["--mod", "200", "--val", "3", "--folder", "out"])).ok().says("2 messages");
}

#[test]
fn mail_check_tells_what_renders_differently_and_what_does_not_render() {
    let dir = copy_example("digest");
    let mjml = std::env::var("LONGSHORE_MJML")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/mjml").to_owned());
    dir.write("longshore.toml", format!("[mail]\nmjml_dir = \"{mjml}\"\n"));
    let page = "<mjml><mj-body><mj-section><mj-column><mj-text>hello</mj-text></mj-column></mj-section></mj-body></mjml>";
    std::fs::create_dir(dir.path("pages")).unwrap();
    dir.write("pages/good.mjml", page);
    let lines = dir.run(&["mail", "check", "pages", "--json"]).ok().json();
    assert!(lines[0]["error"].is_null() && lines[0]["differences"].is_u64(), "{lines}");
    dir.write("pages/wrong.mjml", page.replace("mj-text", "mj-txt"));
    let lines = dir.run(&["mail", "check", "pages", "--json"]).ends(3).json();
    let error = lines[1]["error"].as_str().unwrap();
    assert!(error.starts_with("embedded: ") && error.contains("mj-txt"), "{lines}");
}
