//! A private PostgreSQL.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use super::process::ServerProcess;
use super::{certificate, data_template, os_user, program, run, with_free_port};

const PACKAGE: &str = "postgresql";
pub(super) const NAME: &str = "longshore";
pub(super) const PASSWORD: &str = "quay-side-9%";

/// Default settings: small, and without durable writes, which cost time.
const SETTINGS: [(&str, &str); 2] = [("fsync", "off"), ("shared_buffers", "16MB")];

/// A PostgreSQL for one test: a database and its owner, over TCP on loopback. Dropping it stops and removes
/// it.
#[derive(Debug)]
pub struct PrivatePostgres {
    // Declared before the folder: the server stops before its files are removed.
    process: Option<ServerProcess>,
    folder: TempDir,
    port: u16,
    settings: Vec<(String, String)>,
    /// The addresses it listens on beside loopback.
    addresses: Vec<IpAddr>,
    /// How many fresh databases were created.
    fresh_databases: AtomicU32,
}

impl PrivatePostgres {
    /// Starts a PostgreSQL; takes a second or two.
    pub fn start() -> io::Result<Self> {
        Self::start_with(&[])
    }

    /// Starts a PostgreSQL with settings, such as `("fsync", "on")` or `("max_connections", "200")`.
    pub fn start_with(settings: &[(&str, &str)]) -> io::Result<Self> {
        let folder = os_user::folder("longshore-postgres-")?;
        data_template::fill("postgres", &folder, init)?;
        Self::start_in(folder, settings)
    }

    /// Starts a PostgreSQL with its data below `folder`, such as a [`SmallDisk`](super::SmallDisk).
    pub fn start_below(folder: &Path) -> io::Result<Self> {
        let folder = os_user::folder_in(folder, "longshore-postgres-")?;
        data_template::fill("postgres", &folder, init)?;
        Self::start_in(folder, &[])
    }

    /// The URL through a proxy on this machine.
    pub fn url_at_port(&self, port: u16) -> String {
        url(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port), NAME)
    }

    /// Starts a standby that replicates this server, until it is [`promote`](Self::promote)d.
    pub fn start_standby(&self) -> io::Result<Self> {
        let folder = os_user::folder("longshore-postgres-")?;
        self.back_up(&folder)?;
        Self::serve_in(folder, &[])
    }

    fn back_up(&self, folder: &TempDir) -> io::Result<()> {
        let program = program("pg_basebackup", &folders(), PACKAGE)?;
        let mut command = os_user::command(&program, folder.path());
        self.connect_by_env(&mut command);
        command.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--pgdata"]);
        command.arg(folder.path().join("data"));
        run(command).map(drop)
    }

    /// Discards the data and starts again on the same port, as a standby of another server.
    pub fn rejoin(&mut self, primary: &Self) -> io::Result<()> {
        self.stop();
        std::fs::remove_dir_all(self.folder.path().join("data"))?;
        primary.back_up(&self.folder)?;
        self.process = Some(self.serve()?);
        Ok(())
    }

    /// Ends the replication: from now on this server accepts writes.
    pub fn promote(&self) -> io::Result<()> {
        self.run("SELECT pg_promote()").map(drop)
    }

    /// Starts a PostgreSQL with TLS and a certificate for `localhost`, signed by its own
    /// [`ca_certificate`](Self::ca_certificate).
    pub fn start_with_tls() -> io::Result<Self> {
        let folder = os_user::folder("longshore-postgres-")?;
        data_template::fill("postgres", &folder, init)?;
        certificate::make(folder.path())?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (own, key) = (path(certificate::SERVER), path(certificate::KEY));
        let settings = [("ssl", "on"), ("ssl_cert_file", &own), ("ssl_key_file", &key)];
        Self::start_in(folder, &settings)
    }

    fn start_in(folder: TempDir, settings: &[(&str, &str)]) -> io::Result<Self> {
        let server = Self::serve_in(folder, settings)?;
        server.run_in("postgres", &format!("CREATE DATABASE {NAME}"))?;
        Ok(server)
    }

    fn serve_in(folder: TempDir, settings: &[(&str, &str)]) -> io::Result<Self> {
        let settings = SETTINGS.iter().chain(settings);
        let settings = settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut server = Self {
            process: None,
            folder,
            port: 0,
            settings: settings.collect(),
            addresses: Vec::new(),
            fresh_databases: AtomicU32::new(0),
        };
        let (process, port) = with_free_port(|port| {
            server.port = port;
            Ok((server.serve()?, port))
        })?;
        (server.process, server.port) = (Some(process), port);
        Ok(server)
    }

    /// Its URL, as `postgres://user:password@127.0.0.1:port/database`.
    pub fn url(&self) -> String {
        self.url_for(NAME)
    }

    /// The URL of another database.
    pub fn url_for(&self, database: &str) -> String {
        self.url_at(IpAddr::V4(Ipv4Addr::LOCALHOST), database)
    }

    /// The URL of a database at an address that it [`listen`](Self::listen)s on.
    pub fn url_at(&self, address: IpAddr, database: &str) -> String {
        url(SocketAddr::new(address, self.port), database)
    }

    /// The certificate of the authority that signed the server's, if it offers TLS.
    pub fn ca_certificate(&self) -> PathBuf {
        self.folder.path().join(certificate::AUTHORITY)
    }

    /// Its port, the same on all addresses.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The name of its database and of the owner.
    pub fn name(&self) -> &'static str {
        NAME
    }

    /// Its password. No output of Longshore may contain it.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// Runs statements with psql and returns its output: a line per row, columns separated by tabs.
    pub fn run(&self, sql: &str) -> io::Result<String> {
        self.run_in(NAME, sql)
    }

    /// Runs statements in another database.
    pub fn run_in(&self, database: &str, sql: &str) -> io::Result<String> {
        let mut command = self.client("psql")?;
        command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--field-separator=\t"]);
        command.args(["--set=ON_ERROR_STOP=1", "--dbname", database, "--command", sql]);
        run(command)
    }

    /// All that the server has logged.
    pub fn log(&self) -> io::Result<String> {
        ServerProcess::log(self.folder.path())
    }

    /// A command that runs a client of PostgreSQL, such as psql or pgbench, on this server's database.
    pub fn client(&self, name: &str) -> io::Result<Command> {
        let mut command = Command::new(program(name, &folders(), "postgresql-client")?);
        self.connect_by_env(&mut command);
        Ok(command)
    }

    fn connect_by_env(&self, command: &mut Command) {
        command.envs([("PGHOST", "127.0.0.1"), ("PGUSER", NAME), ("PGDATABASE", NAME)]);
        command.env("PGPORT", self.port.to_string());
        command.env("PGPASSWORD", PASSWORD).env("PGCLIENTENCODING", "UTF8");
    }

    /// Creates a database, empty or as a copy of `template`, and returns its URL. The template must have no
    /// connections at that time.
    pub fn fresh_database(&self, template: Option<&str>) -> io::Result<String> {
        let name = format!("{NAME}_{}", self.fresh_databases.fetch_add(1, Ordering::Relaxed) + 1);
        let template = template.unwrap_or("template0");
        // Copies files instead of writing their contents to the WAL: takes a quarter of the time.
        let sql = format!("CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY");
        self.run_in("postgres", &sql)?;
        Ok(self.url_for(&name))
    }

    /// Restarts the server to listen on more addresses of the machine, for clients from any address.
    pub fn listen(&mut self, addresses: &[IpAddr]) -> io::Result<()> {
        self.addresses = addresses.to_vec();
        let rules = self.folder.path().join("data/pg_hba.conf");
        let mut rules = std::fs::OpenOptions::new().append(true).open(rules)?;
        writeln!(rules, "host all all all scram-sha-256")?;
        self.restart()
    }

    /// Stops the server and closes its connections; keeps its data.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Restarts the server on the same port.
    pub fn restart(&mut self) -> io::Result<()> {
        self.stop();
        self.process = Some(self.serve()?);
        Ok(())
    }

    /// Restarts the server as after a crash: `pg_ctl restart -m immediate`. It writes nothing first, and
    /// recovers from its WAL.
    pub fn restart_immediate(&mut self) -> io::Result<()> {
        self.crash()?;
        self.restart()
    }

    /// Stops the server as a crash does: it writes nothing first.
    pub fn crash(&mut self) -> io::Result<()> {
        self.process.take().map_or(Ok(()), |process| process.stop_with("QUIT"))
    }

    fn serve(&self) -> io::Result<ServerProcess> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let mut addresses = vec![Ipv4Addr::LOCALHOST.to_string()];
        addresses.extend(self.addresses.iter().map(ToString::to_string));
        let mut args = vec!["-D".to_owned(), path("data")];
        let own = [
            ("listen_addresses", addresses.join(",")),
            ("port", self.port.to_string()),
            ("unix_socket_directories", path("")),
        ];
        let chosen = self.settings.iter().map(|(name, value)| (name.as_str(), value.clone()));
        for (name, value) in chosen.chain(own) {
            args.extend(["-c".to_owned(), format!("{name}={value}")]);
        }
        let server = program("postgres", &folders(), PACKAGE)?;
        ServerProcess::start(&server, &args, self.folder.path(), "ready to accept", "INT")
    }
}

/// The URL of a database, with the owner and the password.
pub(super) fn url(server: SocketAddr, database: &str) -> String {
    format!("postgres://{NAME}:{}@{server}/{database}", PASSWORD.replace('%', "%25"))
}

/// The folders of Debian's PostgreSQL versions, newest first.
fn folders() -> Vec<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    versions.sort_by_key(|path| {
        let version = path.parent().and_then(|path| path.file_name()).and_then(|name| name.to_str());
        std::cmp::Reverse(version.and_then(|version| version.parse::<u32>().ok()))
    });
    versions
}

fn init(folder: &TempDir) -> io::Result<()> {
    let secret = folder.path().join("secret");
    std::fs::write(&secret, PASSWORD)?;
    os_user::chown_to_server(&secret)?;
    let mut command = os_user::command(&program("initdb", &folders(), PACKAGE)?, folder.path());
    command.arg("--pgdata").arg(folder.path().join("data"));
    command.args(["--username", NAME, "--auth=scram-sha-256"]).arg("--pwfile").arg(&secret);
    command.args(["--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]);
    run(command)?;
    std::fs::remove_file(secret)
}
