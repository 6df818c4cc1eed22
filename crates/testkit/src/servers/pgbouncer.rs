//! A private PgBouncer in front of a private PostgreSQL.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use tempfile::TempDir;

use super::postgres::{self, NAME, PASSWORD, PrivatePostgres};
use super::process::Process;
use super::{account, on_a_free_port, program};

const PACKAGE: &str = "pgbouncer";

/// A PgBouncer in transaction mode: each transaction may get another of the server's connections, so
/// nothing of a session survives one. All databases of the server, over TCP on loopback. Stopped when
/// dropped.
///
/// It is as strict as Debian's: a client that asks for `options` at its start is refused.
#[derive(Debug)]
pub struct PrivatePgbouncer {
    // Before the folder, so that it is stopped before its files go.
    _process: Process,
    _folder: TempDir,
    port: u16,
}

impl PrivatePgbouncer {
    /// Starts one. It outlives restarts of the server.
    pub fn start(server: &PrivatePostgres) -> io::Result<Self> {
        let folder = account::folder("longshore-pgbouncer-")?;
        // In clear: only so can it show the server that it knows the password.
        write(&folder, "users.txt", &format!("\"{NAME}\" \"{PASSWORD}\"\n"))?;
        let (process, port) = on_a_free_port(|port| Ok((serve(&folder, server, port)?, port)))?;
        Ok(Self { _process: process, _folder: folder, port })
    }

    /// The server's database through this, as `postgres://user:password@127.0.0.1:port/database`.
    pub fn url(&self) -> String {
        self.url_for(NAME)
    }

    /// The same for another of the server's databases; `pgbouncer` is its own, for `SHOW POOLS`.
    pub fn url_for(&self, database: &str) -> String {
        postgres::url(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)), database)
    }

    /// The database of one of the server's own URLs, through this.
    pub fn instead_of(&self, url: &str) -> String {
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
         ; A server that was restarted is found again soon.\n\
         server_login_retry = 1\n",
        server.port(),
        folder.path().join("users.txt").display(),
    )
}

fn serve(folder: &TempDir, server: &PrivatePostgres, port: u16) -> io::Result<Process> {
    write(folder, "pgbouncer.ini", &settings(folder, server, port))?;
    let bouncer = program("pgbouncer", &[PathBuf::from("/usr/sbin")], PACKAGE)?;
    let settings = folder.path().join("pgbouncer.ini");
    Process::start(&bouncer, &[settings], folder.path(), "process up", "TERM")
}

fn write(folder: &TempDir, name: &str, text: &str) -> io::Result<()> {
    let path = folder.path().join(name);
    std::fs::write(&path, text)?;
    account::give(&path)
}
