//! A real browser for tests: Debian's Chromium, headless, driven through a pipe.
//!
//! It speaks the DevTools protocol over two file descriptors, so no driver, port or WebSocket is needed.
//! Clicks are mouse events at the position of an element. The profile is a temporary folder, and the
//! browser ends when the pipe closes.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use command_fds::{CommandFdExt, FdMapping};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// The limit for each answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Flags for a browser in a container without a screen, as root, without background traffic.
const FLAGS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
];

/// A browser with one page.
pub struct Browser {
    to: Sender,
    from: BufReader<Receiver>,
    last_id: u64,
    session: Option<String>,
    complaints: Vec<String>,
    child: Child,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser and opens a page of this size in pixels.
    pub async fn open(url: &str, width: u32, height: u32) -> io::Result<Self> {
        let mut browser = Self::start()?;
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"})).await?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach).await?;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({})).await?;
        }
        browser.resize(width, height).await?;
        browser.call("Page.navigate", json!({"url": url})).await?;
        browser.wait_for("location.href !== 'about:blank' && document.readyState === 'complete'").await?;
        Ok(browser)
    }

    fn start() -> io::Result<Self> {
        let profile = tempfile::tempdir()?;
        let (child_input, output) = io::pipe()?;
        let (input, child_output) = io::pipe()?;
        let mut command = std::process::Command::new("chromium");
        command.args(FLAGS).arg(format!("--user-data-dir={}", profile.path().display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mappings = vec![
            FdMapping { parent_fd: OwnedFd::from(child_input), child_fd: 3 },
            FdMapping { parent_fd: OwnedFd::from(child_output), child_fd: 4 },
        ];
        command.fd_mappings(mappings).map_err(io::Error::other)?;
        let child = Command::from(command).kill_on_drop(true).spawn().map_err(missing)?;
        let from = BufReader::new(Receiver::from_owned_fd(input.into())?);
        let to = Sender::from_owned_fd(output.into())?;
        let complaints = Vec::new();
        Ok(Self { to, from, last_id: 0, session: None, complaints, child, _profile: profile })
    }

    /// Evaluates a script on the page and returns its value. Awaits a promise.
    pub async fn evaluate(&mut self, script: &str) -> io::Result<Value> {
        let call = json!({"expression": script, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", call).await?;
        match answer.get("exceptionDetails") {
            Some(details) => Err(io::Error::other(format!("{script}: {details}"))),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// Waits until a script evaluates to true.
    pub async fn wait_for(&mut self, script: &str) -> io::Result<()> {
        let limit = Instant::now() + TIMEOUT;
        while self.evaluate(script).await? != Value::Bool(true) {
            if Instant::now() > limit {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("timed out waiting for {script}"),
                ));
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Clicks at the centre of an element, even if another element covers it.
    pub async fn click(&mut self, selector: &str) -> io::Result<()> {
        let find = format!(
            "(() => {{ const found = document.querySelector({selector:?}); \
             found.scrollIntoView({{block: 'center', behavior: 'instant'}}); \
             const box = found.getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        );
        let position = self.evaluate(&find).await?;
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({
                "type": kind, "x": position[0], "y": position[1], "button": "left", "clickCount": 1,
            });
            self.call("Input.dispatchMouseEvent", event).await?;
        }
        Ok(())
    }

    /// Changes the size of the page.
    pub async fn resize(&mut self, width: u32, height: u32) -> io::Result<()> {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.call("Emulation.setDeviceMetricsOverride", size).await.map(drop)
    }

    /// Sets the preferred colour scheme: `light` or `dark`.
    pub async fn set_color_scheme(&mut self, scheme: &str) -> io::Result<()> {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.call("Emulation.setEmulatedMedia", json!({"features": [feature]})).await.map(drop)
    }

    /// The whole page as PNG.
    pub async fn screenshot(&mut self) -> io::Result<Vec<u8>> {
        let all = json!({"format": "png", "captureBeyondViewport": true});
        let answer = self.call("Page.captureScreenshot", all).await?;
        STANDARD.decode(answer["data"].as_str().unwrap_or_default()).map_err(io::Error::other)
    }

    /// The errors of the page so far: exceptions, and errors in the browser's log.
    pub fn page_errors(&self) -> &[String] {
        &self.complaints
    }

    /// Closes the browser and waits until it has ended.
    pub async fn close(mut self) -> io::Result<()> {
        self.session = None;
        // The browser may end before it answers.
        let _ = self.call("Browser.close", json!({})).await;
        match timeout(TIMEOUT, self.child.wait()).await {
            Ok(ended) => ended.map(drop),
            Err(_) => self.child.kill().await,
        }
    }

    async fn call(&mut self, method: &str, params: Value) -> io::Result<Value> {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).await?;
        loop {
            let answer = self.receive().await?;
            if answer["id"] != self.last_id {
                self.record_error(&answer);
            } else if let Some(error) = answer.get("error") {
                return Err(io::Error::other(format!("{method}: {error}")));
            } else {
                return Ok(answer["result"].clone());
            }
        }
    }

    async fn receive(&mut self) -> io::Result<Value> {
        let mut bytes = Vec::new();
        let read = timeout(TIMEOUT, self.from.read_until(0, &mut bytes)).await;
        match read.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the browser has ended")),
            _ => {
                bytes.pop();
                serde_json::from_slice(&bytes).map_err(io::Error::other)
            }
        }
    }

    /// Records an event that reports an error of the page.
    fn record_error(&mut self, event: &Value) {
        let params = &event["params"];
        let error_details = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => &params["exceptionDetails"],
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => &params["entry"],
            _ => return,
        };
        self.complaints.push(error_details.to_string());
    }
}

fn missing(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::new(error.kind(), "chromium is missing: install the Debian package chromium")
        }
        _ => error,
    }
}
