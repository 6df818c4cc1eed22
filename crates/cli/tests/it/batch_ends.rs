//! Completion by command and HTTP, once per generation; and alerts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use crate::batch_job::{BATCH, Job};
use crate::support::{SOON, eventually, is_alive};

/// Appends the facts from stdin as a line to the file `told`.
const TELL: &str = "#!/bin/sh\n(cat; echo) >> \"$(dirname \"$0\")/told\"\n";

/// The `[completion]` section of the batch file.
fn completion() -> &'static str {
    &BATCH[BATCH.find("[completion]").unwrap()..]
}

/// A job with another completion section.
fn job(rows: u64, sort: &str, ending: &str) -> Job {
    let job = Job::new(rows, sort).with(&[(completion(), ending)]);
    script(&job, TELL);
    job
}

fn script(job: &Job, text: &str) {
    let path = job.place.write("tell.sh", text);
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

fn told(job: &Job) -> Vec<Value> {
    let text = job.place.read("told");
    text.lines()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Answers each request with the next status (repeating the last) and forwards the bodies.
fn server(statuses: &'static [u16]) -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/ends", listener.local_addr().unwrap());
    let (send, bodies) = channel();
    std::thread::spawn(move || {
        for (n, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            // Forward before answering: after the answer, the client may exit before the test
            // receives the body.
            if send.send(serde_json::from_slice(&body(&stream)).unwrap()).is_err() {
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
fn body(stream: &TcpStream) -> Vec<u8> {
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
fn two_generations(job: &Job) {
    job.run(&[]).ends(3);
    job.execute("UPDATE rows SET sort = 'good'");
    job.operate("retry", &["--failed"]).ok();
    job.run(&[]).ok();
}

fn assert_both_ends(job: &Job, told: &[Value]) {
    assert_eq!(told.len(), 2, "{told:?}");
    for (end, (generation, done, failed)) in told.iter().zip([(1, 20, 10), (2, 30, 0)]) {
        assert_eq!(
            (&end["batch"], &end["status"]),
            (&json!(job.name()), &json!("complete")),
            "{end}"
        );
        assert_eq!((&end["generation"], &end["total"]), (&json!(generation), &json!(30)), "{end}");
        assert_eq!((&end["done"], &end["failed"]), (&json!(done), &json!(failed)), "{end}");
        assert_eq!((&end["simulated"], &end["tenant"]), (&json!(true), &json!("default")), "{end}");
        assert!(end["cost_usd"].as_f64() > Some(0.0), "{end}");
    }
}

#[test]
fn a_command_is_told_of_each_generation_once() {
    let job = job(30, THIRD_IS_BAD, "[completion]\ncommand = [\"./tell.sh\"]\n");
    two_generations(&job);
    assert_both_ends(&job, &told(&job));
    // No announcement is left to be repeated.
    job.place.run(&["worker", "--slots", "1", "--until-idle"]).ok();
    assert_eq!(told(&job).len(), 2);
}

#[test]
fn a_server_is_told_of_each_generation_once() {
    let (url, bodies) = server(&[200]);
    let job = job(30, THIRD_IS_BAD, &format!("[completion]\nhttp = \"{url}\"\n"));
    two_generations(&job);
    assert_both_ends(&job, &bodies.try_iter().collect::<Vec<_>>());
}

#[test]
fn a_server_that_is_away_for_a_moment_is_told_again() {
    let (url, bodies) = server(&[503, 200]);
    let job = job(5, "'good'", &format!("[completion]\nhttp = \"{url}\"\n"));
    job.run(&[]).ok();
    let told: Vec<Value> = bodies.try_iter().collect();
    assert_eq!((told.len(), &told[0]), (2, &told[1]), "the same again");
}

#[test]
fn a_completion_that_does_not_work_is_an_error_and_the_rows_stay_done() {
    let (url, bodies) = server(&[404]);
    let job = job(5, "'good'", &format!("[completion]\nhttp = \"{url}?key=secret\"\n"));
    let run = job.run(&[]).ends(1);
    let last = run.json();
    assert_eq!((&last["status"], &last["done"]), (&json!("complete"), &json!(5)), "{last}");
    assert!(last["completion_error"].as_str().unwrap().contains("404"), "{last}");
    assert!(!run.err.contains("secret") && !run.out.contains("secret"), "secrets_never_printed");
    assert_eq!(bodies.try_iter().count(), 1, "no server that says no is asked again");
}

/// The first completion failed; the second succeeds and is the one reported.
#[test]
fn a_completion_that_works_in_the_next_generation_is_no_error_any_more() {
    let (url, bodies) = server(&[404, 200]);
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
    script(&job, "#!/bin/sh\necho $$ >> began\nsleep 600\n");
    let mut run = job.start(&[]);
    eventually(SOON, || job.place.read("began").ends_with('\n').then_some(()));
    let batch = job.batch();
    assert_eq!((&batch["status"], &batch["done"]), (&json!("complete"), &json!(30)));
    run.kill();
    script(&job, TELL);
    let _worker = job.place.start(&["worker", "--slots", "1"]);
    let told = eventually(SOON, || Some(told(&job)).filter(|told| !told.is_empty()));
    assert_eq!((told.len(), &told[0]["done"]), (1, &json!(30)));
    let pid = job.place.read("began").trim().to_owned();
    eventually(SOON, || (!is_alive(&pid)).then_some(()));
}

fn alerts(no_progress: &str) -> String {
    let tell = "command = [\"./tell.sh\"]";
    format!("[alerts]\nno_progress = \"{no_progress}\"\n{tell}\n\n{}", completion())
}

#[test]
fn a_batch_that_makes_no_progress_is_told_of_once() {
    let job = job(20, "'silent'", &alerts("1s"));
    let mut run = job.start(&[]);
    eventually(SOON, || (!told(&job).is_empty()).then_some(()));
    run.signal("INT");
    eventually(SOON, || job.place.read("stderr").contains("draining").then_some(()));
    run.signal("INT");
    assert_eq!(run.ends_within(SOON), 130);
    let told = told(&job);
    assert_eq!((told.len(), &told[0]["code"]), (1, &json!("no-progress")), "{told:?}");
    assert_eq!((&told[0]["batch"], &told[0]["type"]), (&json!(job.name()), &json!("review")));
    let words = job.place.read("stderr");
    assert!(words.contains("alert: batch") && words.contains("no row has ended"), "{words}");
}

#[test]
fn a_threshold_that_is_reached_and_work_that_is_left_are_told_of() {
    let job = job(2_000, "'bad'", &alerts("10m"));
    let file = job.place.read("batch.toml").replace("limit = \"none\"", "limit = 10");
    job.place.write("batch.toml", file);
    job.run(&[]).ends(4);
    let alerts = || told(&job).iter().map(|told| told["code"].clone()).collect::<Vec<_>>();
    assert_eq!(alerts(), ["threshold"]);
    assert!(
        told(&job)[0]["words"].as_str().unwrap().contains("threshold is 10"),
        "{:?}",
        told(&job)
    );

    job.execute("UPDATE rows SET sort = 'slow'");
    job.operate("resume", &[]).ok();
    let mut run = job.start(&[]);
    job.until_done(1);
    job.operate("cancel", &[]).ok();
    assert_eq!(run.ends_within(SOON), 4);
    assert_eq!(alerts(), ["threshold", "work-left"]);
}
