//! `longshore mail digest`: one message per user and period, whatever dies, and no faster than it is rendered.

use std::collections::BTreeSet;
use std::time::Duration;

use longshore_sqlite::rusqlite::Connection;

use crate::batch_examples::copied;
use crate::slow_renderer::Slow;
use crate::support::{Place, eventually};

const LIMIT: Duration = Duration::from_secs(120);
const DATABASE: &str = "digest/neighbours.db";

/// The files of a folder, if there is one.
fn files(place: &Place, folder: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(place.path(folder)) else { return Vec::new() };
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.unwrap().file_name().display().to_string()
    };
    entries.map(name).collect()
}

/// Whom the messages in `out` are for, in order.
fn recipients(place: &Place) -> Vec<String> {
    let mut all = Vec::new();
    for name in files(place, "out").iter().filter(|name| name.ends_with(".eml")) {
        let text = place.read(&format!("out/{name}"));
        let to = text.lines().find_map(|line| line.strip_prefix("To: ")).expect("somebody");
        all.push(to.rsplit('<').next().unwrap().trim_end_matches('>').to_owned());
    }
    all.sort();
    all
}

fn ask(place: &Place, sql: &str) -> i64 {
    let db = Connection::open(place.path(DATABASE)).unwrap();
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn tell(place: &Place, sql: &str) {
    Connection::open(place.path(DATABASE)).unwrap().execute_batch(sql).unwrap();
}

fn digest<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["mail", "digest", "digest"], more].concat()
}

#[test]
fn the_example_writes_to_each_member_once_and_the_second_time_to_nobody() {
    let place = copied("digest");
    place.run(&digest(&["--folder", "out"])).ok().says("144 messages written to out");
    let all = recipients(&place);
    assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (144, 144));
    place.run(&digest(&["--folder", "out"])).ok().says("no recipient is due");
    place.run(&digest(&["--mode", "immediate", "--folder", "out"])).ok().says("27 messages");
    place.run(&digest(&["--mode", "immediate"])).ok().says("no recipient is due");
    tell(
        &place,
        "INSERT INTO posts SELECT 100, NULL, kind, subject, place, 1, words, picture FROM posts WHERE id = 5",
    );
    place.run(&digest(&["--folder", "out"])).ok().says("no recipient is due");
    let run = place.run(&digest(&["--mode", "immediate", "--folder", "out"])).ok();
    run.says("3 messages written to out");
    assert_eq!(ask(&place, "SELECT sum(sent) FROM digests WHERE mode = 'daily'"), 144);
    place.run(&["--store", &format!("sqlite:{DATABASE}"), "verify"]).ok();
}

#[test]
fn what_members_say_is_text_and_what_came_twice_is_told_once() {
    let place = copied("digest");
    let run = place.run(&digest(&["--dry-run"])).ok();
    assert!(run.out.contains("rows       144"), "{}", run.out);
    assert!(run.out.contains("Sofa &lt;three seats&gt;"), "{}", run.out);
    assert!(files(&place, "spool").is_empty(), "a dry run keeps nothing");
    place.run(&digest(&["--limit", "10"])).ok();
    assert_eq!(files(&place, "spool/pending").len(), 10);
    // Twelve posts of each place; in Mill Lane six came twice.
    let told = "SELECT count(*) FROM posts WHERE place = 'Mill Lane' AND author_id <> 3";
    assert_eq!(ask(&place, told), 12);
    let run = place.run(&digest(&["--dry-run", "--mod", "200", "--val", "3", "--json"])).ok();
    assert_eq!(run.json()["count"], 0, "the third is among the first ten");
    let run = place.run(&digest(&["--dry-run", "--mod", "200", "--val", "13"])).ok();
    assert!(run.out.contains("subject: 6 new near Mill Lane"), "{}", run.out);
}

#[test]
fn shares_are_apart_and_together_they_are_all() {
    let place = copied("digest");
    for (val, more) in [("0", 80), ("1", 64)] {
        let before = files(&place, "spool/pending").len();
        place.run(&digest(&["--mod", "2", "--val", val])).ok();
        // Every tenth member is away, and has an even number.
        assert_eq!(files(&place, "spool/pending").len() - before, 144 - more, "{val}");
    }
    place.run(&digest(&["--mod", "2"])).ends(2).says("--val");
}

#[test]
fn one_that_is_killed_and_run_again_leaves_one_file_per_member() {
    let place = copied("digest");
    // Who takes over waits that long for the dead.
    place.write("longshore.toml", "[worker]\nttl = \"1s\"\n");
    for kill in 1..5 {
        let mut running = place.start(&digest(&["--folder", "out", "--workers", "4"]));
        eventually(LIMIT, || {
            let there = files(&place, "spool/keys").len() >= kill * 25;
            (there || running.0.try_wait().unwrap().is_some()).then_some(())
        });
        running.kill();
    }
    place.run(&digest(&["--folder", "out"])).ok();
    let all = recipients(&place);
    assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (144, 144));
    assert_eq!(ask(&place, "SELECT count(*) FROM digests WHERE sent = 1"), 144);
    place.run(&["--store", &format!("sqlite:{DATABASE}"), "verify"]).ok();
}

#[test]
fn the_tracker_moves_to_what_is_in_the_message_that_is_kept_and_no_further() {
    let place = copied("digest");
    place.run(&digest(&["--mod", "200", "--val", "3"])).ok();
    let last = ask(&place, "SELECT last_post FROM digests WHERE member_id = 3");
    // As if it had died before its end was recorded, and something came meanwhile.
    tell(&place, "DELETE FROM digests");
    tell(
        &place,
        "INSERT INTO posts SELECT 100, NULL, kind, 'Late', place, 8, words, picture FROM posts WHERE id = 3",
    );
    place.run(&digest(&["--mod", "200", "--val", "3"])).ok();
    assert_eq!(files(&place, "spool/keys").len(), 1, "it is the same message");
    assert_eq!(ask(&place, "SELECT last_post FROM digests WHERE member_id = 3"), last);
    // The late one comes with the next.
    tell(&place, "UPDATE digests SET day = '2020-01-01'");
    std::fs::remove_dir_all(place.path("spool")).unwrap();
    let run = place.run(&digest(&["--dry-run", "--mod", "200", "--val", "3"])).ok();
    assert!(run.out.contains("subject: 1 new near Mill Lane"), "{}", run.out);
}

#[test]
fn a_daemon_writes_to_whoever_becomes_due_and_ends_when_told() {
    let place = copied("digest");
    let mode = ["--mode", "immediate", "--daemon", "--every", "50ms", "--folder", "out"];
    let mut running = place.start(&digest(&mode));
    eventually(LIMIT, || (recipients(&place).len() == 27).then_some(()));
    tell(
        &place,
        "INSERT INTO posts SELECT 100, NULL, kind, 'Late', place, 1, words, picture FROM posts WHERE id = 5",
    );
    eventually(LIMIT, || (recipients(&place).len() == 30).then_some(()));
    running.signal("TERM");
    assert_eq!(running.ends_within(LIMIT), 0);
}

#[test]
fn one_that_was_left_is_ended_as_its_own_days_also_on_the_next() {
    let place = copied("digest");
    place.write("longshore.toml", "[worker]\nttl = \"1s\"\n");
    let file = place.read("digest/batch.toml");
    let move_to = |zone: &str| {
        let zone = format!("[mail]\nzone = \"{zone}\"\n");
        place.write("digest/batch.toml", file.replace("[mail]\n", &zone));
    };
    move_to("Pacific/Pago_Pago");
    let mut running = place.start(&digest(&["--workers", "1"]));
    eventually(LIMIT, || (files(&place, "spool/keys").len() >= 5).then_some(()));
    running.kill();
    assert!(files(&place, "spool/keys").len() < 144, "it was killed too late");
    // Where it is never the same day.
    move_to("Pacific/Kiritimati");
    place.run(&digest(&[])).ok().says("resuming batch");
    assert_eq!(files(&place, "spool/keys").len(), 144);
    assert_eq!(ask(&place, "SELECT count(DISTINCT day) FROM digests"), 1);
}

#[test]
fn a_day_is_that_of_the_files_zone() {
    let place = copied("digest");
    let file = place.read("digest/batch.toml");
    let (mut kept, mut post) = (0, 100);
    // Between those two it is never the same day.
    for zone in ["Pacific/Pago_Pago", "Pacific/Kiritimati"] {
        let zone = format!("[mail]\nzone = \"{zone}\"\n");
        place.write("digest/batch.toml", file.replace("[mail]\n", &zone));
        place.run(&digest(&["--mod", "200", "--val", "3"])).ok();
        kept += 1;
        assert_eq!(files(&place, "spool/keys").len(), kept, "{zone}");
        let more = "kind, subject, place, 8, words, picture FROM posts WHERE id = 3";
        tell(&place, &format!("INSERT INTO posts SELECT {post}, NULL, {more}"));
        post += 1;
        place.run(&digest(&["--mod", "200", "--val", "3"])).ok().says("no recipient is due");
    }
}

#[test]
fn mistakes_are_told_before_anybody_is_written_to() {
    let place = copied("digest");
    let file = place.read("digest/batch.toml");
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
        place.write("digest/batch.toml", &wrong);
        place.run(&digest(&[])).ends(1).says(says);
    }
    place.write("digest/batch.toml", file.replace("[mail]\n", "[mail]\npool = \"digest\"\n"));
    place.run(&digest(&[])).ends(2).says("the size of pool `digest` is unknown");
    place.write("digest/batch.toml", &file);
    let page = place.read("digest/digest.mjml").replace("mj-divider", "mj-dividr");
    place.write("digest/digest.mjml", page);
    // The gate of a deployment sees it before any row does.
    let run = place.run(&digest(&["--dry-run"])).ends(3);
    assert!(run.out.contains("MJML_ERROR") && run.out.contains("mj-dividr"), "{}", run.out);
    place.run(&digest(&["--limit", "2"])).ends(3);
    let run = place.run(&["--store", &format!("sqlite:{DATABASE}"), "unit", "list"]).ok();
    assert!(run.out.contains("mjml-error"), "{}", run.out);
}

#[test]
fn digests_slow_down_with_a_slow_renderer_instead_of_piling_up() {
    let place = copied("digest");
    let slow = Slow::start("<html><body>page</body></html>".to_owned(), Duration::ZERO);
    let port = slow.port;
    let config = format!(
        "[pools.mjml]\nmax = 2\n[pools.digest]\nmax = 3\n\
         [mail]\nrenderer = \"http://127.0.0.1:{port}/\"\npool = \"mjml\"\n\
         render_timeout = \"10m\"\n"
    );
    place.write("longshore.toml", config);
    let file = place
        .read("digest/batch.toml")
        .replace("[mail]\n", "[mail]\npool = \"digest\"\ntimeout = \"10m\"\n");
    place.write("digest/batch.toml", file);
    let mut running = place.start(&digest(&["--workers", "8"]));
    eventually(LIMIT, || (slow.at_once() == 2).then_some(()));
    let store = format!("sqlite:{DATABASE}");
    let batch = || place.run(&["--store", &store, "batch", "list", "--json"]).ok().json();
    // All that eight workers hold, and not one message more than there are permits.
    let held = eventually(LIMIT, || {
        let held = batch()[0]["leased"].as_u64().unwrap();
        (held >= 8).then_some(held)
    });
    assert_eq!(held, 8);
    assert_eq!(files(&place, "spool/keys").len(), 0);
    let pools = place.run(&["pool", "status", "--json"]).ok().json();
    for (name, most) in [("mjml", 2), ("digest", 3)] {
        let pool = pools.as_array().unwrap().iter().find(|pool| pool["pool"] == name).expect(name);
        assert_eq!(pool["in_use"], most, "{pools}");
    }
    // Any number: one that was given up is asked for again.
    slow.allow(usize::MAX / 2);
    assert_eq!(running.ends_within(LIMIT), 0);
    assert_eq!(slow.most(), 2, "no more than there are permits");
    assert_eq!(files(&place, "spool/pending").len(), 144);
}

#[test]
fn who_cannot_be_written_to_is_tried_once_a_day_and_keeps_nobody_waiting() {
    let place = copied("digest");
    // Created with its rows, of which a hundred have no address.
    place.run(&digest(&["--limit", "1"])).ok();
    tell(&place, "UPDATE members SET email = 'nowhere' WHERE id BETWEEN 2 AND 101");
    let bad =
        ask(&place, "SELECT count(*) FROM members WHERE id BETWEEN 2 AND 101 AND id % 10 <> 0");
    let file = place.read("digest/batch.toml");
    let move_to = |zone: &str| {
        let zone = format!("[mail]\nzone = \"{zone}\"\n");
        place.write("digest/batch.toml", file.replace("[mail]\n", &zone));
    };
    let failed = "SELECT count(*) FROM digests WHERE failed = 'MAIL_ERROR' AND sent = 0";
    let days = "SELECT count(DISTINCT day) FROM digests WHERE sent > 0";
    move_to("Pacific/Pago_Pago");
    tell(&place, "DELETE FROM digests");
    let mut running = place.start(&digest(&["--daemon", "--every", "50ms"]));
    eventually(LIMIT, || (ask(&place, failed) == bad).then_some(()));
    eventually(LIMIT, || (ask(&place, "SELECT count(*) FROM digests") == 144).then_some(()));
    let tried = ask(&place, "SELECT count(*) FROM digests WHERE last_post = 0");
    assert_eq!(tried, bad, "the tracker of those who got nothing stays");
    let more =
        "SELECT 100, NULL, kind, 'Late', place, 1, words, picture FROM posts WHERE id IN (5)";
    tell(&place, &format!("INSERT INTO posts {more}"));
    // Between those two it is never the same day.
    move_to("Pacific/Kiritimati");
    eventually(LIMIT, || (ask(&place, days) == 2).then_some(()));
    let today = format!("{failed} AND day = (SELECT max(day) FROM digests)");
    eventually(LIMIT, || (ask(&place, &today) == bad).then_some(()));
    running.signal("TERM");
    assert_eq!(running.ends_within(LIMIT), 0);
    let store = format!("sqlite:{DATABASE}");
    let batches = place.run(&["--store", &store, "batch", "list", "--json"]).ok().json();
    let batches = batches.as_array().unwrap();
    assert!(batches.iter().all(|batch| batch["status"] == "complete"), "{batches:?}");
    let failures: i64 = batches.iter().map(|batch| batch["failed"].as_i64().unwrap()).sum();
    assert_eq!(failures, 2 * bad, "once a day each");
}

#[test]
fn a_batch_that_stands_still_keeps_its_own_rows_and_nobody_elses() {
    let place = copied("digest");
    let file = place.read("digest/batch.toml");
    let limit = format!("{file}\n[failures]\nlimit = 1\n");
    place.write("digest/batch.toml", &limit);
    place.run(&digest(&["--limit", "1"])).ok();
    tell(&place, "DELETE FROM digests; UPDATE members SET email = 'nowhere' WHERE id = 1");
    place.write("digest/batch.toml", limit.replace("workers = 64", "workers = 1"));
    tell(&place, "UPDATE members SET wants = 'nothing' WHERE id > 9");
    std::fs::remove_dir_all(place.path("spool")).unwrap();
    place.run(&digest(&[])).ends(4).says("threshold");
    let before = files(&place, "spool/keys").len();
    assert!(before < 8, "it was paused with rows left");
    tell(&place, "UPDATE members SET wants = 'daily' WHERE id IN (11, 12)");
    let store = format!("sqlite:{DATABASE}");
    let batches = || {
        let list = place.run(&["--store", &store, "batch", "list", "--json"]).ok().json();
        list.as_array().unwrap().len()
    };
    let run = place.run(&digest(&[])).ends(4);
    run.says("is paused").says("all others are written to");
    assert_eq!(files(&place, "spool/keys").len(), before + 2, "the two others have theirs");
    // Nobody is due but those whom the paused one has: a daemon finds that out once.
    let known = batches();
    let mut running = place.start(&digest(&["--daemon", "--every", "1ms"]));
    eventually(LIMIT, || (batches() > known).then_some(()));
    tell(&place, "UPDATE members SET wants = 'daily' WHERE id = 13");
    eventually(LIMIT, || (files(&place, "spool/keys").len() == before + 3).then_some(()));
    running.signal("TERM");
    assert_eq!(running.ends_within(LIMIT), 0);
    assert!(batches() <= known + 3, "{} of {known}", batches());
}

#[test]
fn with_a_folder_it_takes_its_own_messages_and_leaves_those_of_others() {
    let place = copied("digest");
    place.write("page.html", "<p>hello</p>");
    let put = ["mail", "spool", "page.html", "--key", "welcome/1", "--from", "a@example.org"];
    place.run(&[&put[..], &["--to", "b@example.org", "--subject", "s"]].concat()).ok();
    place.run(&digest(&["--mode", "immediate"])).ok();
    let run = place.run(&digest(&["--limit", "5", "--folder", "out"])).ok();
    run.says("5 messages written to out").says("28 other due messages stay in the spool");
    assert_eq!(recipients(&place).len(), 5);
    assert_eq!(files(&place, "spool/pending").len(), 28);
}

#[test]
fn names_are_quoted_and_what_has_no_room_is_counted() {
    let place = copied("digest");
    place.run(&digest(&["--limit", "1"])).ok();
    tell(&place, "UPDATE members SET name = 'Ann \"the quick\" \\' WHERE id = 3");
    let more = "WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 127)
        INSERT INTO posts SELECT i, NULL, kind, 'Late ' || i, place, 8, words, picture
        FROM n, posts WHERE posts.id = 3";
    tell(&place, more);
    let run = place.run(&digest(&["--mod", "200", "--val", "3", "--dry-run"])).ok();
    assert!(run.out.contains(r#"to: "Ann \"the quick\" \\" <member3@"#), "{}", run.out);
    assert!(run.out.contains("And 10 more"), "{}", run.out);
    place.run(&digest(&["--mod", "200", "--val", "3", "--folder", "out"])).ok().says("2 messages");
}

#[test]
fn mail_check_tells_what_renders_differently_and_what_does_not_render() {
    let place = copied("digest");
    let mjml = std::env::var("LONGSHORE_MJML")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/mjml").to_owned());
    place.write("longshore.toml", format!("[mail]\nmjml_dir = \"{mjml}\"\n"));
    let page = "<mjml><mj-body><mj-section><mj-column><mj-text>hello</mj-text></mj-column></mj-section></mj-body></mjml>";
    std::fs::create_dir(place.path("pages")).unwrap();
    place.write("pages/good.mjml", page);
    let lines = place.run(&["mail", "check", "pages", "--json"]).ok().json();
    assert!(lines[0]["error"].is_null() && lines[0]["differences"].is_u64(), "{lines}");
    place.write("pages/wrong.mjml", page.replace("mj-text", "mj-txt"));
    let lines = place.run(&["mail", "check", "pages", "--json"]).ends(3).json();
    let error = lines[1]["error"].as_str().unwrap();
    assert!(error.starts_with("embedded: ") && error.contains("mj-txt"), "{lines}");
}
