//! A private Redis.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::process::ServerProcess;
use super::{certificate, os_user, program, run, with_free_port};

const PACKAGE: &str = "redis-server";
const PASSWORD: &str = "jetty-side-3%";
/// Redis logs to its standard output only; the watcher reads standard error.
const LOG_TO_STDERR: &str = r#"exec "$@" >&2"#;

/// What a Redis keeps across a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedisPersistence {
    /// Nothing: neither snapshots nor an append-only file.
    Nothing,
    /// The append-only file, which is synced once a second.
    EverySecond,
    /// The append-only file, which is synced before every answer.
    Always,
}

/// A Redis for one test, with a password, over TCP on loopback. Dropping it stops and removes it.
#[derive(Debug)]
pub struct PrivateRedis {
    // Declared before the folder: the server stops before its files are removed.
    process: Option<ServerProcess>,
    folder: TempDir,
    port: u16,
    remembers: RedisPersistence,
    settings: Vec<String>,
}

impl PrivateRedis {
    /// Starts a Redis.
    pub fn start(remembers: RedisPersistence) -> io::Result<Self> {
        Self::start_with(remembers, &[])
    }

    /// Starts a Redis with settings, such as `("maxmemory", "10mb")`.
    pub fn start_with(remembers: RedisPersistence, settings: &[(&str, &str)]) -> io::Result<Self> {
        Self::start_in(os_user::folder("longshore-redis-")?, remembers, settings)
    }

    /// Starts a Redis with TLS only and a certificate for `localhost`, signed by its own
    /// [`ca_certificate`](Self::ca_certificate).
    pub fn start_secure() -> io::Result<Self> {
        let folder = os_user::folder("longshore-redis-")?;
        certificate::make(folder.path())?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (own, key) = (path(certificate::SERVER), path(certificate::KEY));
        let settings = [("tls-cert-file", &*own), ("tls-key-file", &key), ("tls-auth-clients", "no")];
        Self::start_in(folder, RedisPersistence::Nothing, &settings)
    }

    fn start_in(folder: TempDir, remembers: RedisPersistence, settings: &[(&str, &str)]) -> io::Result<Self> {
        let settings = settings.iter().flat_map(|(name, value)| [format!("--{name}"), (*value).into()]);
        let settings = settings.collect();
        let mut server = Self { process: None, folder, port: 0, remembers, settings };
        let (process, port) = with_free_port(|port| {
            server.port = port;
            Ok((server.serve()?, port))
        })?;
        (server.process, server.port) = (Some(process), port);
        Ok(server)
    }

    /// Its URL, as `redis://:password@127.0.0.1:port`.
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// The URL at another port, such as that of a proxy.
    pub fn url_at(&self, port: u16) -> String {
        format!("redis://:{}@127.0.0.1:{port}", PASSWORD.replace('%', "%25"))
    }

    /// The URL of a server with TLS.
    pub fn tls_url(&self) -> String {
        self.url().replace("redis:", "rediss:").replace("127.0.0.1", "localhost")
    }

    /// The certificate of the authority that signed the server's, if it uses TLS.
    pub fn ca_certificate(&self) -> PathBuf {
        self.folder.path().join(certificate::AUTHORITY)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its password. No output of Longshore may contain it.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// Runs a command with redis-cli and returns its output.
    pub fn run(&self, words: &[&str]) -> io::Result<String> {
        let mut command = Command::new(program("redis-cli", &[], "redis-tools")?);
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]).args(words);
        command.env("REDISCLI_AUTH", PASSWORD);
        run(command)
    }

    /// Stops the server and closes its connections; persisted data stays.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Restarts the server on the same port.
    pub fn restart(&mut self) -> io::Result<()> {
        self.stop();
        self.process = Some(self.serve()?);
        Ok(())
    }

    /// Kills the server and starts it again, as after a crash.
    pub fn restart_killed(&mut self) -> io::Result<()> {
        if let Some(process) = self.process.take() {
            process.stop_with("KILL")?;
        }
        self.restart()
    }

    fn serve(&self) -> io::Result<ServerProcess> {
        let (appends, syncs) = match self.remembers {
            RedisPersistence::Nothing => ("no", "no"),
            RedisPersistence::EverySecond => ("yes", "everysec"),
            RedisPersistence::Always => ("yes", "always"),
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
        let mut args = vec!["-c", LOG_TO_STDERR, "redis", &server];
        args.extend(own.iter().flatten());
        args.extend(self.settings.iter().map(String::as_str));
        let (shell, ready) = (Path::new("/bin/sh"), "Ready to accept connections");
        ServerProcess::start(shell, &args, self.folder.path(), ready, "TERM")
    }
}
