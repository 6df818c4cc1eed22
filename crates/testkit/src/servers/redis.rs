//! A private Redis.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::process::Process;
use super::{account, certificate, on_a_free_port, program, run};

const PACKAGE: &str = "redis-server";
const PASSWORD: &str = "jetty-side-3%";
/// It has no log but its standard output.
const SPEAKS_UP: &str = r#"exec "$@" >&2"#;

/// What a Redis keeps over a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remembers {
    /// Nothing: neither snapshots nor an append-only file.
    Nothing,
    /// What the append-only file has, which is synced once a second.
    EverySecond,
    /// Everything that was ever answered.
    Always,
}

/// A Redis of one test's own, with a password, over TCP on loopback. Stopped and removed when dropped.
#[derive(Debug)]
pub struct PrivateRedis {
    // Before the folder, so that it is stopped before its files go.
    process: Option<Process>,
    folder: TempDir,
    port: u16,
    remembers: Remembers,
    settings: Vec<String>,
}

impl PrivateRedis {
    /// Starts one; takes a moment.
    pub fn start(remembers: Remembers) -> io::Result<Self> {
        Self::start_with(remembers, &[])
    }

    /// The same with settings of its own, as `("maxmemory", "10mb")`.
    pub fn start_with(remembers: Remembers, settings: &[(&str, &str)]) -> io::Result<Self> {
        Self::start_in(account::folder("longshore-redis-")?, remembers, settings)
    }

    /// Starts one that speaks TLS only, with a certificate for `localhost` that is signed by an
    /// [`authority`](Self::authority) of its own.
    pub fn start_secure() -> io::Result<Self> {
        let folder = account::folder("longshore-redis-")?;
        certificate::make(folder.path())?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (own, key) = (path(certificate::OWN), path(certificate::KEY));
        let settings =
            [("tls-cert-file", &*own), ("tls-key-file", &key), ("tls-auth-clients", "no")];
        Self::start_in(folder, Remembers::Nothing, &settings)
    }

    fn start_in(
        folder: TempDir,
        remembers: Remembers,
        settings: &[(&str, &str)],
    ) -> io::Result<Self> {
        let settings =
            settings.iter().flat_map(|(name, value)| [format!("--{name}"), (*value).into()]);
        let settings = settings.collect();
        let mut server = Self { process: None, folder, port: 0, remembers, settings };
        let (process, port) = on_a_free_port(|port| {
            server.port = port;
            Ok((server.serve()?, port))
        })?;
        (server.process, server.port) = (Some(process), port);
        Ok(server)
    }

    /// Where it is, as `redis://:password@127.0.0.1:port`.
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// The same at another port: of something that leads to it.
    pub fn url_at(&self, port: u16) -> String {
        format!("redis://:{}@127.0.0.1:{port}", PASSWORD.replace('%', "%25"))
    }

    /// The same for one that speaks TLS.
    pub fn secure_url(&self) -> String {
        self.url().replace("redis:", "rediss:").replace("127.0.0.1", "localhost")
    }

    /// The certificate of whoever signed the server's own, if it speaks TLS.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join(certificate::AUTHORITY)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its password, which nobody must ever print.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// Runs a command with its own client, and returns what that prints.
    pub fn run(&self, words: &[&str]) -> io::Result<String> {
        let mut command = Command::new(program("redis-cli", &[], "redis-tools")?);
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]).args(words);
        command.env("REDISCLI_AUTH", PASSWORD);
        run(command)
    }

    /// Stops it; what it remembers stays. Its clients' connections are closed.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Starts it again where it was.
    pub fn restart(&mut self) -> io::Result<()> {
        self.stop();
        self.process = Some(self.serve()?);
        Ok(())
    }

    /// Ends it as a crash would, and starts it again.
    pub fn restart_killed(&mut self) -> io::Result<()> {
        if let Some(process) = self.process.take() {
            process.stop_with("KILL")?;
        }
        self.restart()
    }

    fn serve(&self) -> io::Result<Process> {
        let (appends, syncs) = match self.remembers {
            Remembers::Nothing => ("no", "no"),
            Remembers::EverySecond => ("yes", "everysec"),
            Remembers::Always => ("yes", "always"),
        };
        let server = program("redis-server", &[], PACKAGE)?.display().to_string();
        let (folder, port) = (self.folder.path().display().to_string(), self.port.to_string());
        let secure = self.settings.iter().any(|setting| setting == "--tls-cert-file");
        let (clear, tls) = if secure { ("0", &*port) } else { (&*port, "0") };
        let own = [
            ["--bind", "127.0.0.1"],
            ["--port", clear],
            ["--tls-port", tls],
            ["--dir", &folder],
            ["--requirepass", PASSWORD],
            ["--save", ""],
            ["--appendonly", appends],
            ["--appendfsync", syncs],
        ];
        let mut args = vec!["-c", SPEAKS_UP, "redis", &server];
        args.extend(own.iter().flatten());
        args.extend(self.settings.iter().map(String::as_str));
        let (shell, ready) = (Path::new("/bin/sh"), "Ready to accept connections");
        Process::start(shell, &args, self.folder.path(), ready, "TERM")
    }
}
