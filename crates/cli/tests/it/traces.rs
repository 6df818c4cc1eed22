//! Traces across processes, seen by a collector of OpenTelemetry's.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::json;

use crate::serve::Served;
use crate::support::{Place, Run, Running, SOON, eventually, limit};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// Takes what programs send to `/v1/traces`.
struct Collector {
    url: String,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let spans = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&spans);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let seen = Arc::clone(&seen);
                std::thread::spawn(move || take(stream.unwrap(), &seen));
            }
        });
        Self { url, spans }
    }

    /// The span of this name in our trace, once it is there.
    fn span(&self, name: &str) -> Span {
        eventually(limit(SOON), || {
            let spans = self.spans.lock().unwrap();
            let ours = |span: &&Span| span.name == name && hex(&span.trace_id) == TRACE;
            spans.iter().find(ours).cloned()
        })
    }
}

/// Takes one request after the other.
fn take(stream: TcpStream, seen: &Mutex<Vec<Span>>) {
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
            if let Some(said) = line.to_lowercase().strip_prefix("content-length:") {
                length = said.trim().parse().unwrap();
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

fn text(text: &str) -> Option<Any> {
    Some(Any::StringValue(text.to_owned()))
}

fn assert_child(child: &Span, parent: &Span) {
    assert_eq!(
        hex(&child.parent_span_id),
        hex(&parent.span_id),
        "{} of {}",
        child.name,
        parent.name
    );
}

#[test]
fn a_trace_leads_from_whoever_asked_through_the_server_to_the_worker_and_its_command() {
    let place = Place::new();
    let collector = Collector::start();
    let file = format!("[telemetry]\notlp = \"{}\"\n", collector.url);
    place.write("longshore.toml", file);
    let served = Served::start(&place, &[]);
    let unit =
        json!({ "kind": "exec", "payload": { "argv": ["sh", "-c", "printenv TRACEPARENT"] } });
    let headers = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n");
    let (status, told) = served.ask_with("POST", "/api/v1/units", &headers, &unit.to_string());
    assert_eq!(status, 201, "{told}");
    place.work();
    let request = collector.span("POST /api/v1/units");
    assert_eq!(hex(&request.parent_span_id), PARENT);
    assert_eq!(attribute(&request, "http.response.status_code"), Some(Any::IntValue(201)));
    assert_child(&collector.span("send"), &request);
    // Another process, which knows of it by the unit alone.
    let run = collector.span("run exec");
    assert_child(&run, &request);
    assert_eq!(attribute(&run, "outcome"), text("done"));
    let handler = collector.span("handler");
    assert_child(&handler, &run);
    let finish = collector.span("finish");
    assert_child(&finish, &run);
    assert!(finish.start_time_unix_nano >= handler.end_time_unix_nano);
    let id = serde_json::from_str::<serde_json::Value>(&told).unwrap();
    let said = place.unit(id["unit"].as_str().unwrap())["result"]["stdout"].to_string();
    assert!(said.contains(&format!("00-{TRACE}-{}-01", hex(&handler.span_id))), "{said}");
    served.stop();
}

#[test]
fn a_command_passes_on_the_trace_that_it_is_part_of_and_questions_are_part_of_it() {
    let place = Place::new();
    let collector = Collector::start();
    place.run(&["profile", "add", "parrot", "--provider", "echo"]).ok();
    let ask = ["ai", "ask", "--queue", "--profile", "parrot", "--timeout", "60s", "good day"];
    let mut asking = place.command(&ask);
    asking.env("TRACEPARENT", format!("00-{TRACE}-{PARENT}-01"));
    let asking = asking.spawn().unwrap();
    let mut worker = place.command(&["ai", "worker"]);
    worker.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url).stderr(Stdio::null());
    let mut worker = Running(worker.stdout(Stdio::null()).spawn().unwrap());
    Run::of(asking).ok();
    worker.signal("TERM");
    assert_eq!(worker.ends_within(SOON), 0);
    let run = collector.span("run ai");
    assert_eq!(hex(&run.parent_span_id), PARENT, "nobody followed the command that sent it");
    let spans = collector.spans.lock().unwrap().clone();
    let chat = spans.iter().find(|span| span.name.starts_with("chat ")).expect("a call");
    assert_child(chat, &collector.span("handler"));
    assert_eq!(attribute(chat, "gen_ai.provider.name"), text("echo"));
    assert!(matches!(attribute(chat, "gen_ai.usage.output_tokens"), Some(Any::IntValue(1..))));
    let all = format!("{spans:?}");
    assert!(!all.contains("good day"), "what is asked is nobody's business");
}

#[test]
fn a_collector_that_is_dead_or_silent_is_complained_of_once_and_stops_no_work() {
    let place = Place::new();
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // Takes connections and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [dead, silent.local_addr().unwrap()] {
        let line = json!({ "argv": ["true"] }).to_string() + "\n";
        let sent = place.run_with(&["submit", "exec", "--lines", "-"], line.repeat(200));
        sent.ok();
        let mut worker = place.command(&["worker", "--slots", "4", "--until-idle", "--json"]);
        worker.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"));
        worker.env("OTEL_BSP_MAX_QUEUE_SIZE", "64");
        let run = Run::of(worker.spawn().unwrap()).ok();
        let complaints = run.err.matches("rejects traces").count();
        let dropped = run.err.matches("dropped a Span due to queue full").count();
        assert!(complaints <= 1 && dropped <= 1, "{}", run.err);
        assert!(complaints + dropped > 0, "{}", run.err);
    }
    assert_eq!(place.queue()["counts"]["done"], 400);
    drop(silent);
}

#[test]
fn what_is_no_traceparent_is_left_behind() {
    let place = Place::new();
    let served = Served::start(&place, &[]);
    let unit = json!({ "kind": "exec", "payload": { "argv": ["true"] } }).to_string();
    let mut kept = Vec::new();
    for given in ["nonsense", &format!("00-{TRACE}-{PARENT}-01")] {
        let headers = format!("traceparent: {given}\r\n");
        let (status, told) = served.ask_with("POST", "/api/v1/units", &headers, &unit);
        assert_eq!(status, 201, "{told}");
        let id = serde_json::from_str::<serde_json::Value>(&told).unwrap();
        kept.push(place.unit(id["unit"].as_str().unwrap())["trace"].clone());
    }
    assert_eq!(kept, [json!(null), json!(format!("00-{TRACE}-{PARENT}-01"))]);
    served.stop();
}
