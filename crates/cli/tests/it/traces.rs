//! Traces across processes, received by an OpenTelemetry collector.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::json;

use crate::serve::ServeProcess;
use crate::support::{ChildGuard, CliOutput, TIMEOUT, TestDir, eventually, stretch};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// Receives spans at `/v1/traces`.
struct TraceCollector {
    url: String,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl TraceCollector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let spans = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&spans);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let seen = Arc::clone(&seen);
                std::thread::spawn(move || receive_spans(stream.unwrap(), &seen));
            }
        });
        Self { url, spans }
    }

    /// Waits for the span of this name in the test's trace.
    fn span(&self, name: &str) -> Span {
        eventually(stretch(TIMEOUT), || {
            let spans = self.spans.lock().unwrap();
            let ours = |span: &&Span| span.name == name && hex(&span.trace_id) == TRACE;
            spans.iter().find(ours).cloned()
        })
    }
}

/// Handles the requests of one connection.
fn receive_spans(stream: TcpStream, seen: &Mutex<Vec<Span>>) {
    let mut lines = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line == "\r\n" {
                break;
            }
            if let Some(stdout) = line.to_lowercase().strip_prefix("content-length:") {
                length = stdout.trim().parse().unwrap();
            }
            head += &line;
        }
        assert!(head.starts_with("POST /v1/traces "), "{head}");
        let mut body = vec![0; length];
        lines.read_exact(&mut body).unwrap();
        let request = ExportTraceServiceRequest::decode(&*body).unwrap();
        let parts = request.resource_spans.into_iter().flat_map(|part| part.scope_spans);
        seen.lock().unwrap().extend(parts.flat_map(|part| part.spans));
        let _ = lines.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attribute(span: &Span, name: &str) -> Option<Any> {
    let found = span.attributes.iter().find(|attribute| attribute.key == name)?;
    found.value.clone()?.value
}

fn text_value(text: &str) -> Option<Any> {
    Some(Any::StringValue(text.to_owned()))
}

fn assert_child(child: &Span, parent: &Span) {
    assert_eq!(hex(&child.parent_span_id), hex(&parent.span_id), "{} of {}", child.name, parent.name);
}

#[test]
fn a_trace_leads_from_whoever_asked_through_the_server_to_the_worker_and_its_command() {
    let dir = TestDir::new();
    let collector = TraceCollector::start();
    let file = format!("[telemetry]\notlp = \"{}\"\n", collector.url);
    dir.write("longshore.toml", file);
    let server = ServeProcess::start(&dir, &[]);
    let unit = json!({ "kind": "exec", "payload": { "argv": ["sh", "-c", "printenv TRACEPARENT"] } });
    let headers = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n");
    let (status, response) = server.send_with("POST", "/api/v1/units", &headers, &unit.to_string());
    assert_eq!(status, 201, "{response}");
    dir.work();
    let request = collector.span("POST /api/v1/units");
    assert_eq!(hex(&request.parent_span_id), PARENT);
    assert_eq!(attribute(&request, "http.response.status_code"), Some(Any::IntValue(201)));
    assert_child(&collector.span("send"), &request);
    // Another process, which knows the trace only by the unit.
    let run = collector.span("run exec");
    assert_child(&run, &request);
    assert_eq!(attribute(&run, "outcome"), text_value("done"));
    let handler = collector.span("handler");
    assert_child(&handler, &run);
    let finish = collector.span("finish");
    assert_child(&finish, &run);
    assert!(finish.start_time_unix_nano >= handler.end_time_unix_nano);
    let id = serde_json::from_str::<serde_json::Value>(&response).unwrap();
    let stdout = dir.unit(id["unit"].as_str().unwrap())["result"]["stdout"].to_string();
    assert!(stdout.contains(&format!("00-{TRACE}-{}-01", hex(&handler.span_id))), "{stdout}");
    server.stop();
}

#[test]
fn a_command_passes_on_the_trace_that_it_is_part_of_and_questions_are_part_of_it() {
    let dir = TestDir::new();
    let collector = TraceCollector::start();
    dir.run(&["profile", "add", "parrot", "--provider", "echo"]).ok();
    let ask = ["ai", "ask", "--queue", "--profile", "parrot", "--timeout", "60s", "good day"];
    let mut asking = dir.command(&ask);
    asking.env("TRACEPARENT", format!("00-{TRACE}-{PARENT}-01"));
    let asking = asking.spawn().unwrap();
    let mut worker = dir.command(&["ai", "worker"]);
    worker.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url).stderr(Stdio::null());
    let mut worker = ChildGuard(worker.stdout(Stdio::null()).spawn().unwrap());
    CliOutput::of(asking).ok();
    worker.signal("TERM");
    assert_eq!(worker.ends_within(TIMEOUT), 0);
    let run = collector.span("run ai");
    assert_eq!(hex(&run.parent_span_id), PARENT, "the worker's span has the sender's parent");
    let spans = collector.spans.lock().unwrap().clone();
    let chat = spans.iter().find(|span| span.name.starts_with("chat ")).expect("a call");
    assert_child(chat, &collector.span("handler"));
    assert_eq!(attribute(chat, "gen_ai.provider.name"), text_value("echo"));
    assert!(matches!(attribute(chat, "gen_ai.usage.output_tokens"), Some(Any::IntValue(1..))));
    let all = format!("{spans:?}");
    assert!(!all.contains("good day"), "spans contain no prompts");
}

#[test]
fn a_collector_that_is_dead_or_silent_is_complained_of_once_and_stops_no_work() {
    let dir = TestDir::new();
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // Accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [dead, silent.local_addr().unwrap()] {
        let line = json!({ "argv": ["true"] }).to_string() + "\n";
        let sent = dir.run_with(&["submit", "exec", "--lines", "-"], line.repeat(200));
        sent.ok();
        let mut worker = dir.command(&["worker", "--slots", "4", "--until-idle", "--json"]);
        worker.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"));
        worker.env("OTEL_BSP_MAX_QUEUE_SIZE", "64");
        let run = CliOutput::of(worker.spawn().unwrap()).ok();
        let complaints = run.err.matches("rejects traces").count();
        let dropped = run.err.matches("dropped a Span due to queue full").count();
        assert!(complaints <= 1 && dropped <= 1, "{}", run.err);
        assert!(complaints + dropped > 0, "{}", run.err);
    }
    assert_eq!(dir.queue()["counts"]["done"], 400);
    drop(silent);
}

#[test]
fn what_is_no_traceparent_is_left_behind() {
    let dir = TestDir::new();
    let server = ServeProcess::start(&dir, &[]);
    let unit = json!({ "kind": "exec", "payload": { "argv": ["true"] } }).to_string();
    let mut traces = Vec::new();
    for given in ["nonsense", &format!("00-{TRACE}-{PARENT}-01")] {
        let headers = format!("traceparent: {given}\r\n");
        let (status, response) = server.send_with("POST", "/api/v1/units", &headers, &unit);
        assert_eq!(status, 201, "{response}");
        let id = serde_json::from_str::<serde_json::Value>(&response).unwrap();
        traces.push(dir.unit(id["unit"].as_str().unwrap())["trace"].clone());
    }
    assert_eq!(traces, [json!(null), json!(format!("00-{TRACE}-{PARENT}-01"))]);
    server.stop();
}
