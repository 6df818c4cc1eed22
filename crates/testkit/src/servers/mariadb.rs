//! A private MariaDB.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::process::ServerProcess;
use super::{data_template, os_user, program, run, with_free_port};

const PACKAGE: &str = "mariadb-server";
const NAME: &str = "longshore";
const PASSWORD: &str = "dock-side-7%";
/// Small, and without durable writes, which cost time.
const OPTIONS: [&str; 4] = [
    "--no-defaults",
    "--innodb-log-file-size=8M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-buffer-pool-size=24M",
];

/// A MariaDB for one test: a database and a user with all rights on it, over TCP on loopback. Dropping it
/// stops and removes it.
#[derive(Debug)]
pub struct PrivateMariaDb {
    // Declared before the folder: the server stops before its files are removed.
    process: Option<ServerProcess>,
    folder: TempDir,
    port: u16,
}

impl PrivateMariaDb {
    /// Starts a MariaDB; takes a few seconds.
    pub fn start() -> io::Result<Self> {
        let folder = os_user::folder("longshore-mariadb-")?;
        data_template::fill("mariadb", &folder, install)?;
        std::fs::write(folder.path().join("init.sql"), init())?;
        os_user::chown_to_server(&folder.path().join("init.sql"))?;
        let (process, port) = with_free_port(|port| Ok((serve(&folder, port)?, port)))?;
        Ok(Self { process: Some(process), folder, port })
    }

    /// Its URL, as `mysql://user:password@127.0.0.1:port/database`.
    pub fn url(&self) -> String {
        self.url_with(&PASSWORD.replace('%', "%25"))
    }

    /// The URL with another password, which must be percent-encoded.
    pub fn url_with(&self, password: &str) -> String {
        format!("mysql://{NAME}:{password}@127.0.0.1:{}/{NAME}", self.port)
    }

    /// Its password. No output of Longshore may contain it.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// Runs statements with MariaDB's client and returns its output: a line per row, columns separated by
    /// tabs.
    pub fn run(&self, sql: &str) -> io::Result<String> {
        let mut command = Command::new(program("mariadb", &[], "mariadb-client")?);
        command.args(["--no-defaults", "--batch", "--skip-column-names", "--host=127.0.0.1"]);
        command.arg(format!("--port={}", self.port)).args(["--user", NAME]);
        command.args(["--default-character-set=utf8mb4", "--execute", sql, NAME]);
        command.env("MYSQL_PWD", PASSWORD);
        run(command)
    }

    /// Stops the server and closes its connections; keeps its data.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Restarts the server on the same port.
    pub fn restart(&mut self) -> io::Result<()> {
        self.stop();
        self.process = Some(serve(&self.folder, self.port)?);
        Ok(())
    }
}

fn install(folder: &TempDir) -> io::Result<()> {
    let mut command = os_user::command(&program("mariadb-install-db", &[], PACKAGE)?, folder.path());
    command.args(OPTIONS).args(folder_options(folder));
    command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    run(command).map(drop)
}

fn init() -> String {
    // The server reads one statement per line.
    format!(
        "CREATE DATABASE IF NOT EXISTS {NAME} CHARACTER SET utf8mb4;\n\
         CREATE USER IF NOT EXISTS {NAME}@'%' IDENTIFIED BY '{PASSWORD}';\n\
         GRANT ALL ON {NAME}.* TO {NAME}@'%';\n"
    )
}

/// Also sets the folder of temporary files: those of two servers would collide in the machine's own.
fn folder_options(folder: &TempDir) -> [String; 2] {
    let path = folder.path().display();
    [format!("--datadir={path}/data"), format!("--tmpdir={path}")]
}

fn serve(folder: &TempDir, port: u16) -> io::Result<ServerProcess> {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut args = OPTIONS.map(str::to_owned).to_vec();
    args.extend(folder_options(folder));
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
    ServerProcess::start(&server, &args, folder.path(), "ready for connections", "TERM")
}
