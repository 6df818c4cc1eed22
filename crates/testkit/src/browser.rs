//! A real browser for tests: Debian's Chromium without a window, driven through a pipe.
//!
//! It speaks the DevTools protocol over two descriptors, so that no driver, no port and no WebSocket
//! are needed. Clicks are made where a person would make them: by the mouse, at a place on the page.
//! Its profile is a folder of its own, and it ends with the pipe.

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

/// No answer takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a browser in a container, without a screen and as root, is kept from doing anything else.
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
    /// Starts a browser and opens a page of so many points.
    pub async fn open(url: &str, width: u32, height: u32) -> io::Result<Self> {
        let mut browser = Self::start()?;
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"})).await?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.ask("Target.attachToTarget", attach).await?;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.ask(domain, json!({})).await?;
        }
        browser.resize(width, height).await?;
        browser.ask("Page.navigate", json!({"url": url})).await?;
        browser
            .wait_for("location.href !== 'about:blank' && document.readyState === 'complete'")
            .await?;
        Ok(browser)
    }

    fn start() -> io::Result<Self> {
        let profile = tempfile::tempdir()?;
        let (theirs_in, ours_out) = io::pipe()?;
        let (ours_in, theirs_out) = io::pipe()?;
        let mut command = std::process::Command::new("chromium");
        command.args(FLAGS).arg(format!("--user-data-dir={}", profile.path().display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mappings = vec![
            FdMapping { parent_fd: OwnedFd::from(theirs_in), child_fd: 3 },
            FdMapping { parent_fd: OwnedFd::from(theirs_out), child_fd: 4 },
        ];
        command.fd_mappings(mappings).map_err(io::Error::other)?;
        let child = Command::from(command).kill_on_drop(true).spawn().map_err(missing)?;
        let from = BufReader::new(Receiver::from_owned_fd(ours_in.into())?);
        let to = Sender::from_owned_fd(ours_out.into())?;
        let complaints = Vec::new();
        Ok(Self { to, from, last_id: 0, session: None, complaints, child, _profile: profile })
    }

    /// What a script on the page comes to. A promise is waited for.
    pub async fn evaluate(&mut self, script: &str) -> io::Result<Value> {
        let ask = json!({"expression": script, "returnByValue": true, "awaitPromise": true});
        let answer = self.ask("Runtime.evaluate", ask).await?;
        match answer.get("exceptionDetails") {
            Some(details) => Err(io::Error::other(format!("{script}: {details}"))),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// Waits until a script comes to true.
    pub async fn wait_for(&mut self, script: &str) -> io::Result<()> {
        let limit = Instant::now() + PATIENCE;
        while self.evaluate(script).await? != Value::Bool(true) {
            if Instant::now() > limit {
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("never: {script}")));
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Clicks in the middle of an element, whatever lies there.
    pub async fn click(&mut self, selector: &str) -> io::Result<()> {
        let find = format!(
            "(() => {{ const found = document.querySelector({selector:?}); \
             found.scrollIntoView({{block: 'center', behavior: 'instant'}}); \
             const box = found.getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        );
        let place = self.evaluate(&find).await?;
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({
                "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1,
            });
            self.ask("Input.dispatchMouseEvent", event).await?;
        }
        Ok(())
    }

    /// Gives the page another size.
    pub async fn resize(&mut self, width: u32, height: u32) -> io::Result<()> {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.ask("Emulation.setDeviceMetricsOverride", size).await.map(drop)
    }

    /// Says which colours its user prefers: `light` or `dark`.
    pub async fn prefer(&mut self, scheme: &str) -> io::Result<()> {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.ask("Emulation.setEmulatedMedia", json!({"features": [feature]})).await.map(drop)
    }

    /// The whole page as PNG.
    pub async fn screenshot(&mut self) -> io::Result<Vec<u8>> {
        let all = json!({"format": "png", "captureBeyondViewport": true});
        let answer = self.ask("Page.captureScreenshot", all).await?;
        STANDARD.decode(answer["data"].as_str().unwrap_or_default()).map_err(io::Error::other)
    }

    /// What went wrong on the page so far: exceptions, and what the browser complained of.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// Ends the browser, and waits until it has.
    pub async fn close(mut self) -> io::Result<()> {
        self.session = None;
        // It may end before it answers.
        let _ = self.ask("Browser.close", json!({})).await;
        match timeout(PATIENCE, self.child.wait()).await {
            Ok(ended) => ended.map(drop),
            Err(_) => self.child.kill().await,
        }
    }

    async fn ask(&mut self, method: &str, params: Value) -> io::Result<Value> {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).await?;
        loop {
            let answer = self.hear().await?;
            if answer["id"] != self.last_id {
                self.note(&answer);
            } else if let Some(error) = answer.get("error") {
                return Err(io::Error::other(format!("{method}: {error}")));
            } else {
                return Ok(answer["result"].clone());
            }
        }
    }

    async fn hear(&mut self) -> io::Result<Value> {
        let mut bytes = Vec::new();
        let read = timeout(PATIENCE, self.from.read_until(0, &mut bytes)).await;
        match read.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the browser has ended")),
            _ => {
                bytes.pop();
                serde_json::from_slice(&bytes).map_err(io::Error::other)
            }
        }
    }

    /// Remembers what speaks of a fault of the page.
    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        let complaint = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => &params["exceptionDetails"],
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => &params["entry"],
            _ => return,
        };
        self.complaints.push(complaint.to_string());
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
