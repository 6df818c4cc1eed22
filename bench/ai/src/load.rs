//! The load generator: connections that each send one request after the other.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The target of the load.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// The full URL.
    pub(crate) url: String,
    pub(crate) model: String,
    pub(crate) token: String,
}

/// The measurements of one run.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// Latency of each request, in milliseconds.
    pub(crate) millis: Vec<f64>,
    /// Duration of the whole run.
    pub(crate) took: Duration,
}

impl Sample {
    /// Requests per second.
    pub(crate) fn rate(&self) -> f64 {
        self.millis.len() as f64 / self.took.as_secs_f64()
    }
}

impl Target {
    fn request(&self) -> Result<Request<Full<Bytes>>> {
        let uri: Uri = self.url.parse()?;
        let host = uri.authority().context("no host")?.as_str().to_owned();
        let words = "Summarise the following text in one sentence. ".repeat(5);
        let said = json!([
            { "role": "system", "content": "You are a helpful assistant." },
            { "role": "user", "content": words },
        ]);
        let body = json!({ "model": self.model, "messages": said, "max_tokens": 200 }).to_string();
        let path = uri.path_and_query().context("no path")?.as_str();
        Ok(Request::post(path)
            .header(HOST, host)
            .header(CONTENT_TYPE, "application/json")
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .body(Full::from(body))?)
    }

    /// Sends requests for the time of `part` with `width` in flight, and checks every answer.
    pub(crate) async fn load(&self, width: usize, part: Duration) -> Result<Sample> {
        let mut tasks = JoinSet::new();
        let begun = Instant::now();
        for _ in 0..width {
            let asking = Asking::open(self).await?;
            tasks.spawn(asking.until(begun + part));
        }
        let mut sample = Sample::default();
        while let Some(done) = tasks.join_next().await {
            sample.millis.extend(done??);
        }
        sample.took = begun.elapsed();
        ensure!(!sample.millis.is_empty(), "{} answered nothing", self.url);
        Ok(sample)
    }
}

/// A connection that sends requests.
struct Asking {
    sender: SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
    /// The task that drives the connection.
    _connection: JoinSet<()>,
}

impl Asking {
    async fn open(target: &Target) -> Result<Self> {
        let request = target.request()?;
        let host = request.headers()[HOST].to_str()?.to_owned();
        let stream = TcpStream::connect(&host).await.with_context(|| host.clone())?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut driving = JoinSet::new();
        driving.spawn(async move {
            let _ = connection.await;
        });
        Ok(Self { sender, request, _connection: driving })
    }

    async fn until(mut self, end: Instant) -> Result<Vec<f64>> {
        let mut millis = Vec::new();
        let mut last = Instant::now();
        while last < end {
            self.ask().await?;
            let now = Instant::now();
            millis.push(now.duration_since(last).as_secs_f64() * 1e3);
            last = now;
        }
        Ok(millis)
    }

    async fn ask(&mut self) -> Result<()> {
        self.sender.ready().await?;
        let response = self.sender.send_request(self.request.clone()).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
        Ok(())
    }
}
