//! Reply queues as programs use them: by the command line, through a server, and by the SDKs.

use std::process::Command;

use serde_json::{Value, json};

use crate::serve::ServeProcess;
use crate::support::{CliOutput, TestDir};

/// A test directory with the echo profile `parrot` of a tenant.
fn dir_with_profile(tenant: &str) -> TestDir {
    let dir = TestDir::new();
    dir.run(&["--tenant", tenant, "profile", "add", "parrot", "--provider", "echo"]).ok();
    dir
}

fn request(tenant: &str, queue: &str) -> String {
    let request = json!({ "version": "1.0", "request_id": "r-1", "customer": tenant, "profile_ref": "parrot",
        "reply_queue": { "library": tenant, "name": queue }, "prompt": "hello" });
    request.to_string()
}

/// The replies that a read printed.
fn replies(read: &CliOutput) -> Vec<Value> {
    read.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_reply_queue_is_opened_read_acknowledged_and_closed() {
    let dir = dir_with_profile("default");
    let unnamed = dir.run(&["ai", "replies", "open"]).ok().out;
    assert!(unnamed.starts_with("replies-"), "{unnamed}");
    dir.run(&["ai", "replies", "open", "r"]).ok();
    dir.run(&["ai", "replies", "open", "r"])
        .ends(1)
        .says("is open: read it, or close it first")
        .says("hint: ");
    dir.run(&["ai", "replies", "open", "x", "--ttl", "1s"]).ends(2).says("hint: as --ttl 5m");
    let open = dir.run(&["ai", "replies", "list", "--json"]).ok().json();
    assert_eq!(
        (&open[0]["queue"], &open[1]["queue"]),
        (&json!("default/r"), &json!(format!("default/{}", unnamed.trim())))
    );
    assert_eq!(open[0]["reply_queue"], json!({ "library": "default", "name": "r" }));
    dir.run_with(&["submit", "ai", "-", "--queue", "ai"], request("default", "r")).ok();
    dir.run(&["ai", "worker", "--until-idle"]).ok();
    let first = replies(&dir.run(&["ai", "replies", "read", "r", "--wait", "1m"]).ok());
    assert_eq!(first[0]["reply"]["response"], "hello", "{first:?}");
    let again = dir.run(&["ai", "replies", "read", "r", "--ack"]).ok();
    assert_eq!(replies(&again), first, "it was not acknowledged");
    assert_eq!(dir.run(&["ai", "replies", "read", "r"]).ok().out, "");
    let id = first[0]["id"].as_str().unwrap();
    assert_eq!(dir.run(&["ai", "replies", "ack", "r", id, "--json"]).ok().json()["acknowledged"], 0);
    dir.run(&["ai", "replies", "close", "r"]).ok();
    let closed = dir.run(&["ai", "replies", "read", "r"]).ends(1);
    closed.says("there is no open reply queue `default/r`").says("hint: `longshore ai replies list`");
    dir.run(&["--tenant", "other", "ai", "replies", "close", "default/replies-1"]).ends(1);
}

const PYTHON: &str = r#"
import sys
from longshore.client import Client, Problem

client = Client("http://" + sys.argv[1], token=sys.argv[2])
with client.open_reply_queue(ttl=60) as queue:
    request = {"version": "1.0", "request_id": "py-1", "customer": "acme", "profile_ref": "parrot",
               "prompt": "hello", "stream": True, "reply_queue": queue.address}
    client.submit("ai", request, queue="ai")
    text = ""
    for reply in queue.replies(wait=60):
        if reply["status"] != "partial":
            break
        text += reply["response"]
    assert (reply["status"], reply["response"], text) == ("success", "hello", "hello"), (reply, text)
    again = queue.read()
    assert [one["reply"] for one in again] == [reply], again
    assert queue.acknowledge(*[one["id"] for one in again]) == 1
    assert queue.read(wait=0) == []
try:
    queue.read()
    raise AssertionError("it is closed")
except Problem as problem:
    assert (problem.status, problem.kind) == (404, "not-found"), problem
print("good")
"#;

const NODE: &str = r#"
import assert from 'node:assert/strict';
const { Client } = await import(process.argv[1]);

const client = new Client(`http://${process.argv[2]}`, { token: process.argv[3] });
const queue = await client.openReplyQueue('from-node', { ttl: 60 });
assert.deepEqual(queue.address, { library: 'acme', name: 'from-node' });
const request = { version: '1.0', request_id: 'js-1', customer: 'acme', profile_ref: 'parrot',
  prompt: 'hello', stream: true, reply_queue: queue.address };
const unit = await client.submit('ai', request, { queue: 'ai' });
let text = '';
let last;
for await (const reply of queue.replies({ wait: 60 })) {
  last = reply;
  if (reply.status !== 'partial') break;
  text += reply.response;
}
assert.deepEqual([last.status, last.response, text], ['success', 'hello', 'hello']);
assert.deepEqual((await client.wait(unit, 60)).result, last);
const [left] = await queue.read();
assert.equal(await queue.acknowledge(left.id), 1);
await queue.close();
await assert.rejects(queue.read(), { status: 404, kind: 'not-found' });
console.log('good');
"#;

#[test]
fn programs_in_python_and_node_and_the_command_line_read_replies_through_a_server() {
    let dir = dir_with_profile("acme");
    let add = ["token", "add", "--for", "acme", "--role", "submit", "--json"];
    let token = dir.run(&add).ok().json()["secret"].as_str().unwrap().to_owned();
    let server = ServeProcess::start(&dir, &[]);
    let mut worker = dir.start(&["ai", "worker"]);
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk");
    let mut python = Command::new("python3");
    python.args(["-B", "-c", PYTHON, &server.address, &token]).env("PYTHONPATH", format!("{root}/python"));
    let mut node = Command::new("node");
    let client = format!("{root}/node/lib/client.js");
    node.args(["--input-type=module", "-e", NODE, &client, &server.address, &token]);
    for program in [&mut python, &mut node] {
        let run = program.output().unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success() && stdout == "good\n", "{stdout}\n{stderr}");
    }
    let url = format!("http://{}", server.address);
    let elsewhere = TestDir::new();
    let run = |args: &[&str]| {
        let mut command = elsewhere.command(&[&["ai", "replies"], args, &["--server", &url]].concat());
        CliOutput::of(command.env("LONGSHORE_TOKEN", &token).spawn().unwrap())
    };
    run(&["open", "r"]).ok();
    let send = ["--tenant", "acme", "submit", "ai", "-", "--queue", "ai"];
    dir.run_with(&send, request("acme", "r").replace("r-1", "cli-1")).ok();
    let read = replies(&run(&["read", "r", "--wait", "1m", "--ack"]).ok());
    assert_eq!(read[0]["reply"]["request_id"], "cli-1", "{read:?}");
    run(&["close", "r"]).ok();
    run(&["read", "r"]).ends(1).says("there is no open reply queue").says("hint: ");
    worker.kill();
    server.stop();
}
