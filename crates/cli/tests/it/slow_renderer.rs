//! A render server that answers when the test allows it, and counts concurrent requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Answers each request with the same page. It lives as long as the test.
pub struct SlowRenderer {
    pub port: u16,
    page: String,
    /// The delay of each answer, once it is allowed.
    delay: Duration,
    /// How many more answers are allowed.
    allowed: Mutex<usize>,
    allowed_changed: Condvar,
    in_flight: AtomicUsize,
    max_in_flight: AtomicUsize,
}

impl SlowRenderer {
    /// Starts the server; it answers no request yet.
    pub fn start(page: String, delay: Duration) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let renderer = Arc::new(Self {
            port: listener.local_addr().unwrap().port(),
            page,
            delay,
            allowed: Mutex::default(),
            allowed_changed: Condvar::new(),
            in_flight: AtomicUsize::new(0),
            max_in_flight: AtomicUsize::new(0),
        });
        let server = Arc::clone(&renderer);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let renderer = Arc::clone(&server);
                std::thread::spawn(move || renderer.serve(stream.unwrap()));
            }
        });
        renderer
    }

    /// Allows this many more answers.
    pub fn allow(&self, answers: usize) {
        *self.allowed.lock().unwrap() += answers;
        self.allowed_changed.notify_all();
    }

    /// The requests that wait now.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// The peak of waiting requests.
    pub fn max_in_flight(&self) -> usize {
        self.max_in_flight.load(Ordering::SeqCst)
    }

    fn serve(&self, stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut stream = stream;
        loop {
            read_request(&mut reader)?;
            let now = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
            self.max_in_flight.fetch_max(now, Ordering::SeqCst);
            let allowed = self.allowed.lock().unwrap();
            *self.allowed_changed.wait_while(allowed, |allowed| *allowed == 0).unwrap() -= 1;
            std::thread::sleep(self.delay);
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length";
            let length = self.page.len();
            stream.write_all(format!("{head}: {length}\r\n\r\n{}", self.page).as_bytes()).ok()?;
        }
    }
}

/// Reads one request to its end; `None` if the connection is closed.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<()> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(text) = line.strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()
}
