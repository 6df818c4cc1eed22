//! A private PostgreSQL.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::process::Process;
use super::{account, on_a_free_port, program, run};

const PACKAGE: &str = "postgresql";
const NAME: &str = "longshore";
const PASSWORD: &str = "quay-side-9%";

/// A PostgreSQL of one test's own: a database and its owner, over TCP on loopback. Stopped and
/// removed when dropped.
#[derive(Debug)]
pub struct PrivatePostgres {
    // Before the folder, so that it is stopped before its files go.
    process: Option<Process>,
    folder: TempDir,
    port: u16,
}

impl PrivatePostgres {
    /// Starts one; takes a second or two.
    pub fn start() -> io::Result<Self> {
        let folder = account::folder("longshore-postgres-")?;
        init(&folder)?;
        let (process, port) = on_a_free_port(|port| Ok((serve(&folder, port)?, port)))?;
        let server = Self { process: Some(process), folder, port };
        server.run_in("postgres", &format!("CREATE DATABASE {NAME}"))?;
        Ok(server)
    }

    /// Where it is, as `postgres://user:password@127.0.0.1:port/database`.
    pub fn url(&self) -> String {
        let password = PASSWORD.replace('%', "%25");
        format!("postgres://{NAME}:{password}@127.0.0.1:{}/{NAME}", self.port)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its database, and its owner.
    pub fn name(&self) -> &'static str {
        NAME
    }

    /// Its password, which nobody must ever print.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// Runs statements with its own client, and returns what that prints: a line per row, columns
    /// with tabs between them.
    pub fn run(&self, sql: &str) -> io::Result<String> {
        self.run_in(NAME, sql)
    }

    fn run_in(&self, database: &str, sql: &str) -> io::Result<String> {
        let mut command = Command::new(program("psql", &folders(), "postgresql-client")?);
        command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]);
        command.args(["--field-separator=\t", "--host=127.0.0.1", "--username", NAME]);
        command.args(["--set=ON_ERROR_STOP=1", "--dbname", database, "--command", sql]);
        command.arg(format!("--port={}", self.port));
        command.env("PGPASSWORD", PASSWORD).env("PGCLIENTENCODING", "UTF8");
        run(command)
    }

    /// Stops it; its data stays. Its clients' connections are closed.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Starts it again where it was.
    pub fn restart(&mut self) -> io::Result<()> {
        self.stop();
        self.process = Some(serve(&self.folder, self.port)?);
        Ok(())
    }
}

/// Where Debian has the servers, the newest first.
fn folders() -> Vec<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    versions.sort_by_key(|path| {
        let version =
            path.parent().and_then(|path| path.file_name()).and_then(|name| name.to_str());
        std::cmp::Reverse(version.and_then(|version| version.parse::<u32>().ok()))
    });
    versions
}

fn init(folder: &TempDir) -> io::Result<()> {
    let secret = folder.path().join("secret");
    std::fs::write(&secret, PASSWORD)?;
    account::give(&secret)?;
    let mut command = account::command(&program("initdb", &folders(), PACKAGE)?, folder.path());
    command.arg("--pgdata").arg(folder.path().join("data"));
    command.args(["--username", NAME, "--auth=scram-sha-256"]).arg("--pwfile").arg(&secret);
    command.args(["--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]);
    run(command)?;
    std::fs::remove_file(secret)
}

fn serve(folder: &TempDir, port: u16) -> io::Result<Process> {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let args = [
        "-D".to_owned(),
        path("data"),
        "-c".to_owned(),
        "listen_addresses=127.0.0.1".to_owned(),
        "-c".to_owned(),
        format!("port={port}"),
        "-c".to_owned(),
        format!("unix_socket_directories={}", path("")),
        // No care for power failures, which costs time.
        "-c".to_owned(),
        "fsync=off".to_owned(),
        "-c".to_owned(),
        "shared_buffers=16MB".to_owned(),
    ];
    let server = program("postgres", &folders(), PACKAGE)?;
    Process::start(&server, &args, folder.path(), "ready to accept connections", "INT")
}
