//! Private servers of other products, for tests: started on loopback from Debian's packages, in a
//! folder of their own, stopped and removed at the end. No service of the machine is touched.
//!
//! A server cannot outlive the test: it stops when the process that started it is gone, however
//! that ended. Where a product is missing, starting fails and says which package brings it.

mod account;
mod certificate;
mod fakes;
mod gridengine;
mod keeper;
mod mariadb;
mod netns;
mod pgbouncer;
mod postgres;
mod process;
mod redis;
mod slurm;
mod smtp;
mod template;

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

pub use fakes::{Away, FakeBatch};
pub use gridengine::PrivateGridEngine;
pub use mariadb::PrivateMariaDb;
pub use netns::PrivateNetwork;
pub use pgbouncer::PrivatePgbouncer;
pub use postgres::PrivatePostgres;
pub use redis::{PrivateRedis, Remembers};
pub use slurm::PrivateSlurm;
pub use smtp::{MailSecurity, PrivateSmtp};

/// How often another port is tried: somebody may take one between our look and the server's.
const TRIES: u32 = 5;

/// The path of a server's program, or which package is missing. `folders` go first: Debian's /usr/bin/psql is a Perl
/// script that takes longer to start than the client it chooses.
fn program(name: &str, folders: &[PathBuf], package: &str) -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let candidates = folders.iter().cloned().chain(std::env::split_paths(&path));
    let mut found = candidates.map(|folder| folder.join(name)).filter(|path| path.is_file());
    found.next().ok_or_else(|| {
        let words = format!("{name} is missing: install the Debian package {package}");
        io::Error::new(io::ErrorKind::NotFound, words)
    })
}

/// A port that nobody listens on.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Several of them; all are held until all are known.
fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    let held = (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let held = held.collect::<io::Result<Vec<TcpListener>>>()?;
    held.iter().map(|port| Ok(port.local_addr()?.port())).collect()
}

/// Tries `start` with several ports.
fn on_a_free_port<T>(mut start: impl FnMut(u16) -> io::Result<T>) -> io::Result<T> {
    let mut tries = TRIES;
    loop {
        tries -= 1;
        match start(free_port()?) {
            Err(error) if tries > 0 && error.kind() == io::ErrorKind::AddrInUse => {}
            answer => return answer,
        }
    }
}

/// Runs a program to its end and returns what it printed.
fn run(mut command: std::process::Command) -> io::Result<String> {
    let program = Path::new(command.get_program()).display().to_string();
    let output = command.output()?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let words = format!("{program}: {}{}", text(&output.stdout), text(&output.stderr));
    Err(io::Error::other(words))
}
