//! Private servers of other products, for tests: started from Debian's packages on loopback, each in a
//! temporary folder, stopped and removed at the end. The machine's own services are not touched.
//!
//! A server cannot outlive the test: it stops when the process that started it ends, also by a kill.
//! If a product is missing, starting fails with an error that names its package.

mod certificate;
mod data_template;
mod fake_schedulers;
mod gridengine;
mod mariadb;
mod network;
mod os_user;
mod pgbouncer;
mod postgres;
mod process;
mod process_guard;
mod redis;
mod slurm;
mod small_disk;
mod smtp;

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

pub use fake_schedulers::{DaemonState, FakeBatchSystem};
pub use gridengine::PrivateGridEngine;
pub use mariadb::PrivateMariaDb;
pub use network::PrivateNetwork;
pub use pgbouncer::PrivatePgbouncer;
pub use postgres::PrivatePostgres;
pub use redis::{PrivateRedis, RedisPersistence};
pub use slurm::PrivateSlurm;
pub use small_disk::SmallDisk;
pub use smtp::{MailSecurity, PrivateSmtp};

/// Attempts with different ports: another process may take a port before the server binds it.
const MAX_PORT_ATTEMPTS: u32 = 5;

/// Finds a server's program, or fails with the missing package. Searches `folders` first: Debian's /usr/bin/psql is a
/// Perl script that takes longer to start than the client it chooses.
fn program(name: &str, folders: &[PathBuf], package: &str) -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let candidates = folders.iter().cloned().chain(std::env::split_paths(&path));
    let mut found = candidates.map(|folder| folder.join(name)).filter(|path| path.is_file());
    found.next().ok_or_else(|| {
        let message = format!("{name} is missing: install the Debian package {package}");
        io::Error::new(io::ErrorKind::NotFound, message)
    })
}

/// A free port on loopback.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Several free ports. All are bound until all are found, so that they differ.
fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    let listeners = (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let listeners = listeners.collect::<io::Result<Vec<TcpListener>>>()?;
    listeners.iter().map(|port| Ok(port.local_addr()?.port())).collect()
}

/// Calls `start` with a free port, again with another one if the port is in use.
fn with_free_port<T>(mut start: impl FnMut(u16) -> io::Result<T>) -> io::Result<T> {
    let mut attempts_left = MAX_PORT_ATTEMPTS;
    loop {
        attempts_left -= 1;
        match start(free_port()?) {
            Err(error) if attempts_left > 0 && error.kind() == io::ErrorKind::AddrInUse => {}
            result => return result,
        }
    }
}

/// Runs a program to its end and returns its standard output.
fn run(mut command: std::process::Command) -> io::Result<String> {
    let program = Path::new(command.get_program()).display().to_string();
    let output = command.output()?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let message = format!("{program}: {}{}", text(&output.stdout), text(&output.stderr));
    Err(io::Error::other(message))
}
