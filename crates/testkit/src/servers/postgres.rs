//! A private PostgreSQL.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use super::process::Process;
use super::{account, certificate, on_a_free_port, program, run, template};

const PACKAGE: &str = "postgresql";
pub(super) const NAME: &str = "longshore";
pub(super) const PASSWORD: &str = "quay-side-9%";

/// What is set unless a test says otherwise: small, and without the care for power failures, which
/// costs time.
const SETTINGS: [(&str, &str); 2] = [("fsync", "off"), ("shared_buffers", "16MB")];

/// A PostgreSQL of one test's own: a database and its owner, over TCP on loopback. Stopped and
/// removed when dropped.
#[derive(Debug)]
pub struct PrivatePostgres {
    // Before the folder, so that it is stopped before its files go.
    process: Option<Process>,
    folder: TempDir,
    port: u16,
    settings: Vec<(String, String)>,
    /// Where it listens beside loopback.
    addresses: Vec<IpAddr>,
    /// How many fresh databases it was asked for.
    fresh: AtomicU32,
}

impl PrivatePostgres {
    /// Starts one; takes a second or two.
    pub fn start() -> io::Result<Self> {
        Self::start_with(&[])
    }

    /// The same with settings of its own, as `("fsync", "on")` or `("max_connections", "200")`.
    pub fn start_with(settings: &[(&str, &str)]) -> io::Result<Self> {
        let folder = account::folder("longshore-postgres-")?;
        template::fill("postgres", &folder, init)?;
        Self::start_in(folder, settings)
    }

    /// Starts one that offers TLS, with a certificate for `localhost` that is signed by an
    /// [`authority`](Self::authority) of its own.
    pub fn start_secure() -> io::Result<Self> {
        let folder = account::folder("longshore-postgres-")?;
        template::fill("postgres", &folder, init)?;
        certificate::make(folder.path())?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (own, key) = (path(certificate::OWN), path(certificate::KEY));
        let settings = [("ssl", "on"), ("ssl_cert_file", &own), ("ssl_key_file", &key)];
        Self::start_in(folder, &settings)
    }

    fn start_in(folder: TempDir, settings: &[(&str, &str)]) -> io::Result<Self> {
        let settings = SETTINGS.iter().chain(settings);
        let settings = settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut server = Self {
            process: None,
            folder,
            port: 0,
            settings: settings.collect(),
            addresses: Vec::new(),
            fresh: AtomicU32::new(0),
        };
        let (process, port) = on_a_free_port(|port| {
            server.port = port;
            Ok((server.serve()?, port))
        })?;
        (server.process, server.port) = (Some(process), port);
        server.run_in("postgres", &format!("CREATE DATABASE {NAME}"))?;
        Ok(server)
    }

    /// Where it is, as `postgres://user:password@127.0.0.1:port/database`.
    pub fn url(&self) -> String {
        self.url_for(NAME)
    }

    /// The same for another of its databases.
    pub fn url_for(&self, database: &str) -> String {
        self.url_at(IpAddr::V4(Ipv4Addr::LOCALHOST), database)
    }

    /// The same at an address that it was told to [`listen`](Self::listen) on.
    pub fn url_at(&self, address: IpAddr, database: &str) -> String {
        url(SocketAddr::new(address, self.port), database)
    }

    /// The certificate of whoever signed the server's own, if it offers TLS.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join(certificate::AUTHORITY)
    }

    /// Its port, on 127.0.0.1 and wherever else it listens.
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

    /// The same in another of its databases.
    pub fn run_in(&self, database: &str, sql: &str) -> io::Result<String> {
        let mut command = Command::new(program("psql", &folders(), "postgresql-client")?);
        command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]);
        command.args(["--field-separator=\t", "--host=127.0.0.1", "--username", NAME]);
        command.args(["--set=ON_ERROR_STOP=1", "--dbname", database, "--command", sql]);
        command.arg(format!("--port={}", self.port));
        command.env("PGPASSWORD", PASSWORD).env("PGCLIENTENCODING", "UTF8");
        run(command)
    }

    /// The URL of a database that nobody has used yet: empty, or a copy of `template`, to which
    /// nobody may be connected just then.
    pub fn fresh_database(&self, template: Option<&str>) -> io::Result<String> {
        let name = format!("{NAME}_{}", self.fresh.fetch_add(1, Ordering::Relaxed) + 1);
        let template = template.unwrap_or("template0");
        // Its files, and not what is in them through the log: a quarter of the time.
        let sql = format!("CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY");
        self.run_in("postgres", &sql)?;
        Ok(self.url_for(&name))
    }

    /// Listens on these addresses of the machine's as well, for clients from anywhere. Restarts it.
    pub fn listen(&mut self, addresses: &[IpAddr]) -> io::Result<()> {
        self.addresses = addresses.to_vec();
        let rules = self.folder.path().join("data/pg_hba.conf");
        let mut rules = std::fs::OpenOptions::new().append(true).open(rules)?;
        writeln!(rules, "host all all all scram-sha-256")?;
        self.restart()
    }

    /// Stops it; its data stays. Its clients' connections are closed.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Starts it again where it was.
    pub fn restart(&mut self) -> io::Result<()> {
        self.stop();
        self.process = Some(self.serve()?);
        Ok(())
    }

    /// Ends it as a crash would, and starts it again: `pg_ctl restart -m immediate`. Nothing is
    /// written first; it recovers from its log.
    pub fn restart_immediate(&mut self) -> io::Result<()> {
        if let Some(process) = self.process.take() {
            process.stop_with("QUIT")?;
        }
        self.restart()
    }

    fn serve(&self) -> io::Result<Process> {
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
        Process::start(&server, &args, self.folder.path(), "ready to accept connections", "INT")
    }
}

/// The owner's URL of a database.
pub(super) fn url(server: SocketAddr, database: &str) -> String {
    format!("postgres://{NAME}:{}@{server}/{database}", PASSWORD.replace('%', "%25"))
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
