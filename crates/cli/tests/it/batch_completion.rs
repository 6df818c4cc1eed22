//! Completion by command and HTTP, once per generation; and alerts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::{Receiver, channel};

use longshore_testkit::servers::{MailSecurity, PrivateSmtp};
use serde_json::{Value, json};

use crate::batch_job::{BATCH_FILE, BatchJob};
use crate::support::{TIMEOUT, eventually, is_alive};

/// Appends the facts from stdin as a line to the file `events`.
const APPEND_FACTS: &str = "#!/bin/sh\n(cat; echo) >> \"$(dirname \"$0\")/told\"\n";

/// The `[completion]` section of the batch file.
fn completion_section() -> &'static str {
    &BATCH_FILE[BATCH_FILE.find("[completion]").unwrap()..]
}

/// A job with another completion section.
fn job(rows: u64, sort: &str, ending: &str) -> BatchJob {
    let job = BatchJob::new(rows, sort).with(&[(completion_section(), ending)]);
    write_script(&job, APPEND_FACTS);
    job
}

fn write_script(job: &BatchJob, text: &str) {
    let path = job.dir.write("tell.sh", text);
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

fn events(job: &BatchJob) -> Vec<Value> {
    let text = job.dir.read("told");
    text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Answers each request with the next status (repeating the last) and forwards the bodies.
fn start_server(statuses: &'static [u16]) -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/ends", listener.local_addr().unwrap());
    let (send, bodies) = channel();
    std::thread::spawn(move || {
        for (n, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            // Forward before answering: after the answer, the client may exit before the test
            // receives the body.
            if send.send(serde_json::from_slice(&read_body(&stream)).unwrap()).is_err() {
                return;
            }
            let status = statuses.get(n).or(statuses.last()).unwrap();
            let head = format!("HTTP/1.1 {status} So\r\ncontent-length: 0\r\nconnection: close");
            stream.write_all(format!("{head}\r\n\r\n").as_bytes()).unwrap();
        }
    });
    (url, bodies)
}

/// Reads a request's body.
fn read_body(stream: &TcpStream) -> Vec<u8> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    body
}

const THIRD_IS_BAD: &str = "CASE i % 3 WHEN 0 THEN 'bad' ELSE 'good' END";

/// Runs a batch, repairs its failures and retries them: two generations, two completions.
fn run_two_generations(job: &BatchJob) {
    job.run(&[]).ends(3);
    job.execute("UPDATE rows SET sort = 'good'");
    job.operate("retry", &["--failed"]).ok();
    job.run(&[]).ok();
}

fn assert_both_ends(job: &BatchJob, events: &[Value]) {
    assert_eq!(events.len(), 2, "{events:?}");
    for (end, (generation, done, failed)) in events.iter().zip([(1, 20, 10), (2, 30, 0)]) {
        assert_eq!((&end["batch"], &end["status"]), (&json!(job.name()), &json!("complete")), "{end}");
        assert_eq!((&end["generation"], &end["total"]), (&json!(generation), &json!(30)), "{end}");
        assert_eq!((&end["done"], &end["failed"]), (&json!(done), &json!(failed)), "{end}");
        assert_eq!((&end["simulated"], &end["tenant"]), (&json!(true), &json!("default")), "{end}");
        assert!(end["cost_usd"].as_f64() > Some(0.0), "{end}");
    }
}

#[test]
fn a_command_is_told_of_each_generation_once() {
    let job = job(30, THIRD_IS_BAD, "[completion]\ncommand = [\"./tell.sh\"]\n");
    run_two_generations(&job);
    assert_both_ends(&job, &events(&job));
    // No announcement is left to be repeated.
    job.dir.run(&["worker", "--slots", "1", "--until-idle"]).ok();
    assert_eq!(events(&job).len(), 2);
}

#[test]
fn a_server_is_told_of_each_generation_once() {
    let (url, bodies) = start_server(&[200]);
    let job = job(30, THIRD_IS_BAD, &format!("[completion]\nhttp = \"{url}\"\n"));
    run_two_generations(&job);
    assert_both_ends(&job, &bodies.try_iter().collect::<Vec<_>>());
}

#[test]
fn a_server_that_is_away_for_a_moment_is_told_again() {
    let (url, bodies) = start_server(&[503, 200]);
    let job = job(5, "'good'", &format!("[completion]\nhttp = \"{url}\"\n"));
    job.run(&[]).ok();
    let events: Vec<Value> = bodies.try_iter().collect();
    assert_eq!((events.len(), &events[0]), (2, &events[1]), "both posts have the same body");
}

#[test]
fn a_completion_that_does_not_work_is_an_error_and_the_rows_stay_done() {
    let (url, bodies) = start_server(&[404]);
    let job = job(5, "'good'", &format!("[completion]\nhttp = \"{url}?key=secret\"\n"));
    let run = job.run(&[]).ends(1);
    let last = run.json();
    assert_eq!((&last["status"], &last["done"]), (&json!("complete"), &json!(5)), "{last}");
    assert!(last["completion_error"].as_str().unwrap().contains("404"), "{last}");
    assert!(!run.err.contains("secret") && !run.out.contains("secret"), "secrets_never_printed");
    assert_eq!(bodies.try_iter().count(), 1, "a 404 is not retried");
}

/// The first completion failed; the second succeeds and is the one reported.
#[test]
fn a_completion_that_works_in_the_next_generation_is_no_error_any_more() {
    let (url, bodies) = start_server(&[404, 200]);
    let job = job(30, THIRD_IS_BAD, &format!("[completion]\nhttp = \"{url}\"\n"));
    job.run(&[]).ends(1);
    job.execute("UPDATE rows SET sort = 'good'");
    job.operate("retry", &["--failed"]).ok();
    let last = job.run(&[]).json();
    assert_both_ends(&job, &bodies.try_iter().collect::<Vec<_>>());
    assert_eq!(last["completion_error"], json!(null), "{last}");
}

/// The run is killed between its last row and the announcement: a worker announces the completion.
#[test]
fn an_end_is_announced_although_its_run_was_killed() {
    let job = job(30, "'good'", "[completion]\ncommand = [\"./tell.sh\"]\n");
    write_script(&job, "#!/bin/sh\necho $$ >> began\nsleep 600\n");
    let mut run = job.start(&[]);
    eventually(TIMEOUT, || job.dir.read("began").ends_with('\n').then_some(()));
    let batch = job.batch();
    assert_eq!((&batch["status"], &batch["done"]), (&json!("complete"), &json!(30)));
    run.kill();
    write_script(&job, APPEND_FACTS);
    let _worker = job.dir.start(&["worker", "--slots", "1"]);
    let events = eventually(TIMEOUT, || Some(events(&job)).filter(|events| !events.is_empty()));
    assert_eq!((events.len(), &events[0]["done"]), (1, &json!(30)));
    let pid = job.dir.read("began").trim().to_owned();
    eventually(TIMEOUT, || (!is_alive(&pid)).then_some(()));
}

fn alert_section(no_progress: &str) -> String {
    let tell = "command = [\"./tell.sh\"]";
    format!("[alerts]\nno_progress = \"{no_progress}\"\n{tell}\n\n{}", completion_section())
}

#[test]
fn a_batch_that_makes_no_progress_is_told_of_once() {
    let job = job(20, "'silent'", &alert_section("1s"));
    let mut run = job.start(&[]);
    eventually(TIMEOUT, || (!events(&job).is_empty()).then_some(()));
    run.signal("INT");
    eventually(TIMEOUT, || job.dir.read("stderr").contains("draining").then_some(()));
    run.signal("INT");
    assert_eq!(run.ends_within(TIMEOUT), 130);
    let events = events(&job);
    assert_eq!((events.len(), &events[0]["code"]), (1, &json!("no-progress")), "{events:?}");
    assert_eq!((&events[0]["batch"], &events[0]["type"]), (&json!(job.name()), &json!("review")));
    let words = job.dir.read("stderr");
    assert!(words.contains("alert: batch") && words.contains("no row has ended"), "{words}");
}

#[test]
fn a_threshold_that_is_reached_and_work_that_is_left_are_told_of() {
    let job = job(2_000, "'bad'", &alert_section("10m"));
    let file = job.dir.read("batch.toml").replace("limit = \"none\"", "limit = 10");
    job.dir.write("batch.toml", file);
    job.run(&[]).ends(4);
    let alerts = || events(&job).iter().map(|events| events["code"].clone()).collect::<Vec<_>>();
    assert_eq!(alerts(), ["threshold"]);
    assert!(events(&job)[0]["words"].as_str().unwrap().contains("threshold is 10"), "{:?}", events(&job));

    job.execute("UPDATE rows SET sort = 'slow'");
    job.operate("resume", &[]).ok();
    let mut run = job.start(&[]);
    job.wait_for_effects(1);
    job.operate("cancel", &[]).ok();
    assert_eq!(run.ends_within(TIMEOUT), 4);
    assert_eq!(alerts(), ["threshold", "work-left"]);
}

#[test]
fn the_end_of_a_batch_is_a_mail_to_each_recipient() {
    let server = PrivateSmtp::start(MailSecurity::None).unwrap();
    let ending = "[completion]\nmail = { from = \"Night <night@example.org>\", to = [\"a@example.org\", \"b@example.org\"] }\n";
    let job = job(10, "CASE WHEN i = 3 THEN 'bad' ELSE 'good' END", ending);
    let smtp = format!("[mail.smtp]\nserver = \"127.0.0.1:{}\"\nsecurity = \"none\"\n", server.port());
    job.dir.write("longshore.toml", job.dir.read("longshore.toml") + &smtp);
    job.run(&[]).ends(3);
    job.dir.run(&["mail", "send"]).ok();
    let sent = server.messages().unwrap();
    let mut to: Vec<&str> = sent.iter().map(|mail| mail["to"][0].as_str().unwrap()).collect();
    to.sort_unstable();
    assert_eq!(to, ["a@example.org", "b@example.org"], "{sent:?}");
    let text = sent[0].to_string();
    assert!(text.contains("9 done, 1 failed") && text.contains("bad-answer"), "{text}");
}
