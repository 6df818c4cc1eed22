//! The dashboard in a real browser.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::batch_job::BatchJob;
use crate::serve::ServeProcess;

/// The browser's steps are in `tests/browser/flow.py`.
#[test]
fn a_batch_is_watched_and_steered_in_a_browser_and_its_console_stays_silent() {
    let job = BatchJob::new(150, "CASE WHEN i % 10 = 0 THEN 'bad' ELSE 'good' END")
        .with(&[("script = \"script.toml\"", "script = \"script.toml\"\ndelay = \"150ms\"")]);
    job.create();
    let server = ServeProcess::start(&job.dir, &[]);
    job.dir.run(&["batch", "start", "."]).ok();
    let flow = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser/flow.py");
    let batch = job.batch()["batch"].as_str().unwrap().to_owned();
    let mut run = Command::new("python3")
        .args(["-B", flow, server.login.as_ref().unwrap(), &batch])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The worker starts once the browser shows the page.
    let (mut output, mut out) = (String::new(), BufReader::new(run.stdout.take().unwrap()));
    out.read_line(&mut output).unwrap();
    assert_eq!(output, "open\n");
    let mut worker = job.dir.start(&["worker", "--slots", "2"]);
    out.read_to_string(&mut output).unwrap();
    assert!(run.wait().unwrap().success() && output.ends_with("good\n"), "{output}");
    worker.kill();
    server.stop();
}
