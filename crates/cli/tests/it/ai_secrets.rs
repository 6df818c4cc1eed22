//! `secrets_never_printed`, part 2: a marked key is sent to a provider that fails in every way and
//! echoes the key. Every byte of output and every written file is then searched for it.

use std::io::{Read, Write};
use std::net::TcpStream;

use longshore_testkit::fake_ai::FakeBehaviour;

use crate::ai_fixture::AiFixture;
use crate::secrets::{CapturedOutput, SECRET, capture_files};
use crate::support::{TIMEOUT, eventually};

/// The provider's responses, with the key in every text they contain.
fn hostile_responses(fixture: &AiFixture) -> Vec<FakeBehaviour> {
    let refuse = |status, body: String| {
        let headers = vec![("x-request-id".to_owned(), SECRET.to_owned())];
        FakeBehaviour::Error { status, headers, body: Some(body) }
    };
    let error = format!("{{\"error\":{{\"message\":\"bad key {SECRET}\",\"code\":\"{SECRET}\"}}}}");
    vec![
        FakeBehaviour::default(),
        refuse(401, error.clone()),
        refuse(400, error.clone()),
        refuse(500, format!("Authorization: Bearer {SECRET}")),
        refuse(429, error),
        FakeBehaviour::Redirect(format!("{}/elsewhere?key={SECRET}", fixture.fake.url())),
        FakeBehaviour::ResetRead,
        FakeBehaviour::Truncated,
        FakeBehaviour::Html(403),
    ]
}

/// Sends one chat completion over HTTP and returns the raw response.
fn post_chat(address: &str) -> Vec<u8> {
    let body = r#"{"model":"fake","messages":[{"role":"user","content":"hi"}]}"#;
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

#[test]
fn secrets_never_printed_by_who_asks() {
    let mut captured = CapturedOutput::default();
    for form in ["human", "json"] {
        let fixture = AiFixture::new(SECRET);
        let logs = ["--log-level", "trace", "--log-format", form];
        let json: &[&str] = if form == "json" { &["--json"] } else { &[] };
        let gateway = ["ai", "gateway", "--no-auth", "--listen", "127.0.0.1:0", "--log-dir", "logs"];
        let mut gateway = fixture.dir.start(&[&gateway, &logs[..]].concat());
        let mut worker = fixture.worker(&logs);
        for (i, act) in hostile_responses(&fixture).into_iter().enumerate() {
            fixture.fake.set_default(act);
            for (source, args) in [
                ("ask", &["ai", "ask", "--profile", "fake", "--timeout", "1s", "hi"][..]),
                ("queue", &["ai", "ask", "--queue", "--profile", "fake", "--timeout", "1s", "hi"]),
                ("health", &["ai", "health", "fake", "--timeout", "1s"]),
                ("test", &["profile", "test", "fake", "--ask"]),
            ] {
                let run = fixture.dir.run(&[args, &logs, json].concat());
                captured.add(format!("stdout of {source} {i} {form}"), run.out);
                captured.add(format!("stderr of {source} {i} {form}"), run.err);
            }
        }
        assert!(
            fixture.fake.requests().iter().any(|seen| seen.header("authorization").contains(SECRET)),
            "the key was used"
        );
        let listen_port = eventually(TIMEOUT, || {
            let pid = gateway.0.id();
            listening_port(pid)
        });
        fixture.fake.set_default(hostile_responses(&fixture).swap_remove(3));
        captured.add(format!("the gateway {form}"), post_chat(&format!("127.0.0.1:{listen_port}")));
        for running in [&mut gateway, &mut worker] {
            running.signal("TERM");
            running.ends_within(TIMEOUT);
        }
        capture_files(&fixture.dir.path(""), &[], &mut captured);
    }
    assert!(captured.0.iter().any(|(source, _)| source.ends_with("longshore.db")), "the store was searched");
    assert!(captured.0.iter().any(|(source, _)| source.contains("logs")), "so were the log files");
    assert!(captured.0.iter().any(|(source, _)| source.ends_with("stderr")), "and what workers said");
    captured.assert_no_secret();
}

/// The loopback port on which a process listens.
fn listening_port(pid: u32) -> Option<u16> {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let links = links.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let sockets: Vec<String> = links
        .filter_map(|link| {
            let name = link.to_string_lossy().into_owned();
            Some(name.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).ok()?;
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Fields: local address, state (0A is listening) and inode.
        let ours = fields[3] == "0A" && sockets.iter().any(|inode| inode == fields[9]);
        let (_, port) = fields[1].split_once(':')?;
        ours.then(|| u16::from_str_radix(port, 16).ok())?
    })
}
