//! A private MariaDB.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::process::Process;
use super::{account, on_a_free_port, program, run, template};

const PACKAGE: &str = "mariadb-server";
const NAME: &str = "longshore";
const PASSWORD: &str = "dock-side-7%";
/// Small, and without the care for power failures that costs time.
const OPTIONS: [&str; 4] = [
    "--no-defaults",
    "--innodb-log-file-size=8M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-buffer-pool-size=24M",
];

/// A MariaDB of one test's own: a database, a user that may do everything in it, over TCP on
/// loopback. Stopped and removed when dropped.
#[derive(Debug)]
pub struct PrivateMariaDb {
    // Before the folder, so that it is stopped before its files go.
    process: Option<Process>,
    folder: TempDir,
    port: u16,
}

impl PrivateMariaDb {
    /// Starts one; takes a few seconds.
    pub fn start() -> io::Result<Self> {
        let folder = account::folder("longshore-mariadb-")?;
        template::fill("mariadb", &folder, install)?;
        std::fs::write(folder.path().join("init.sql"), init())?;
        account::give(&folder.path().join("init.sql"))?;
        let (process, port) = on_a_free_port(|port| Ok((serve(&folder, port)?, port)))?;
        Ok(Self { process: Some(process), folder, port })
    }

    /// Where it is, as `mysql://user:password@127.0.0.1:port/database`.
    pub fn url(&self) -> String {
        self.url_with(&PASSWORD.replace('%', "%25"))
    }

    /// The same with another password, written as URLs have it.
    pub fn url_with(&self, password: &str) -> String {
        format!("mysql://{NAME}:{password}@127.0.0.1:{}/{NAME}", self.port)
    }

    /// Its password, which nobody must ever print.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// Runs statements with its own client, and returns what that prints: a line per row, columns
    /// with tabs between them.
    pub fn run(&self, sql: &str) -> io::Result<String> {
        let mut command = Command::new(program("mariadb", &[], "mariadb-client")?);
        command.args(["--no-defaults", "--batch", "--skip-column-names", "--host=127.0.0.1"]);
        command.arg(format!("--port={}", self.port)).args(["--user", NAME]);
        command.args(["--default-character-set=utf8mb4", "--execute", sql, NAME]);
        command.env("MYSQL_PWD", PASSWORD);
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

fn install(folder: &TempDir) -> io::Result<()> {
    let mut command =
        account::command(&program("mariadb-install-db", &[], PACKAGE)?, folder.path());
    command.args(OPTIONS).args(places(folder));
    command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    run(command).map(drop)
}

fn init() -> String {
    // One statement per line: that is how the server reads it.
    format!(
        "CREATE DATABASE IF NOT EXISTS {NAME} CHARACTER SET utf8mb4;\n\
         CREATE USER IF NOT EXISTS {NAME}@'%' IDENTIFIED BY '{PASSWORD}';\n\
         GRANT ALL ON {NAME}.* TO {NAME}@'%';\n"
    )
}

/// Temporary files, too: two servers' would meet in the machine's own folder for them.
fn places(folder: &TempDir) -> [String; 2] {
    let path = folder.path().display();
    [format!("--datadir={path}/data"), format!("--tmpdir={path}")]
}

fn serve(folder: &TempDir, port: u16) -> io::Result<Process> {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut args = OPTIONS.map(str::to_owned).to_vec();
    args.extend(places(folder));
    args.extend([
        format!("--socket={}", path("sock")),
        format!("--pid-file={}", path("pid")),
        format!("--init-file={}", path("init.sql")),
        format!("--port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--skip-name-resolve".to_owned(),
        "--innodb-lock-wait-timeout=1".to_owned(),
    ]);
    let server = program("mariadbd", &[PathBuf::from("/usr/sbin")], PACKAGE)?;
    Process::start(&server, &args, folder.path(), "ready for connections", "TERM")
}
