//! A small server on loopback: each connection is one request, answered as the test says.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use crate::support::TIMEOUT;

/// A received request.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    pub method: String,
    pub path: String,
    /// By lower-case name.
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

/// A server that lives as long as the test process.
pub struct HttpServer {
    pub url: String,
    requests: Mutex<Receiver<ReceivedRequest>>,
}

impl HttpServer {
    /// Answers request number `n`, from 0, with what `answer` writes.
    pub fn new(answer: impl Fn(usize, &ReceivedRequest, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (send, requests) = channel();
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for (n, stream) in listener.incoming().enumerate() {
                let (answer, send, mut stream) = (Arc::clone(&answer), send.clone(), stream.unwrap());
                std::thread::spawn(move || {
                    let request = read_request(&stream);
                    // Forward before answering: after the answer, the test may ask for the request.
                    let _ = send.send(request.clone());
                    answer(n, &request, &mut stream);
                });
            }
        });
        Self { url, requests: Mutex::new(requests) }
    }

    /// Answers with these in turn, repeating the last.
    pub fn answering(answers: &[String]) -> Self {
        let answers = answers.to_vec();
        Self::new(move |n, _, stream| {
            let answer = answers.get(n).or(answers.last()).unwrap();
            let _ = stream.write_all(answer.as_bytes());
        })
    }

    /// Never answers; when the client disconnects, sends to the receiver.
    pub fn silent() -> (Self, Receiver<()>) {
        let (gone, goes) = channel();
        let gone = Mutex::new(gone);
        let server = Self::new(move |_, _, stream| {
            let _ = stream.read(&mut [0]);
            let _ = gone.lock().unwrap().send(());
        });
        (server, goes)
    }

    /// The next request.
    #[track_caller]
    pub fn request(&self) -> ReceivedRequest {
        self.requests.lock().unwrap().recv_timeout(TIMEOUT).unwrap()
    }

    /// Whether there is no (further) request.
    pub fn has_no_request(&self) -> bool {
        self.take_request().is_none()
    }

    /// The next request, if it has arrived.
    pub fn take_request(&self) -> Option<ReceivedRequest> {
        self.requests.lock().unwrap().try_recv().ok()
    }
}

/// A complete response; `headers` are lines that end with `\r\n`.
pub fn answer(status: u16, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status} So\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

fn read_request(stream: &TcpStream) -> ReceivedRequest {
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap(), words.next().unwrap_or_default());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    lines.read_exact(&mut body).unwrap();
    ReceivedRequest { method, path, headers, body: String::from_utf8(body).unwrap() }
}
