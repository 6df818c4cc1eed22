//! A private PgBouncer in front of a private PostgreSQL.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use tempfile::TempDir;

use super::postgres::{self, NAME, PASSWORD, PrivatePostgres};
use super::process::ServerProcess;
use super::{os_user, program, with_free_port};

const PACKAGE: &str = "pgbouncer";

/// A PgBouncer in transaction mode: each transaction may use another server connection, so no session
/// state survives a transaction. Serves all databases of the server, over TCP on loopback. Stopped on
/// drop.
///
/// As in Debian's default configuration, it rejects a client with the startup parameter `options`.
#[derive(Debug)]
pub struct PrivatePgbouncer {
    // Declared before the folder: the server stops before its files are removed.
    _process: ServerProcess,
    _folder: TempDir,
    port: u16,
}

impl PrivatePgbouncer {
    /// Starts a PgBouncer. It survives restarts of the server.
    pub fn start(server: &PrivatePostgres) -> io::Result<Self> {
        let folder = os_user::folder("longshore-pgbouncer-")?;
        // In plain text: PgBouncer needs the password to log in to the server.
        write(&folder, "users.txt", &format!("\"{NAME}\" \"{PASSWORD}\"\n"))?;
        let (process, port) = with_free_port(|port| Ok((serve(&folder, server, port)?, port)))?;
        Ok(Self { _process: process, _folder: folder, port })
    }

    /// The URL of the server's database through PgBouncer, as `postgres://user:password@127.0.0.1:port/database`.
    pub fn url(&self) -> String {
        self.url_for(NAME)
    }

    /// The URL of another database; `pgbouncer` is the admin console, for `SHOW POOLS`.
    pub fn url_for(&self, database: &str) -> String {
        postgres::url(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)), database)
    }

    /// The URL through PgBouncer of the database that a URL of the server names.
    pub fn pooled_url(&self, url: &str) -> String {
        self.url_for(url.rsplit('/').next().unwrap_or(NAME))
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }
}

fn settings(folder: &TempDir, server: &PrivatePostgres, port: u16) -> String {
    format!(
        "[databases]\n\
         * = host=127.0.0.1 port={}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = scram-sha-256\n\
         auth_file = {}\n\
         admin_users = {NAME}\n\
         pool_mode = transaction\n\
         max_client_conn = 500\n\
         ; Reconnect to a restarted server soon.\n\
         server_login_retry = 1\n",
        server.port(),
        folder.path().join("users.txt").display(),
    )
}

fn serve(folder: &TempDir, server: &PrivatePostgres, port: u16) -> io::Result<ServerProcess> {
    write(folder, "pgbouncer.ini", &settings(folder, server, port))?;
    let bouncer = program("pgbouncer", &[PathBuf::from("/usr/sbin")], PACKAGE)?;
    let settings = folder.path().join("pgbouncer.ini");
    ServerProcess::start(&bouncer, &[settings], folder.path(), "process up", "TERM")
}

fn write(folder: &TempDir, name: &str, text: &str) -> io::Result<()> {
    let path = folder.path().join(name);
    std::fs::write(&path, text)?;
    os_user::chown_to_server(&path)
}
