//! What a URL says.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::tls;

/// A server that vanished sends no farewell: a silent connection is probed after this time, this
/// often, so many times.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(5), Duration::from_secs(2), 3);
/// How long what we sent may stay without an answer of the other machine's.
const UNHEARD: Duration = Duration::from_secs(10);
/// How long one address of a server is tried.
const CONNECT: Duration = Duration::from_secs(5);

/// What is wrong with a URL, or with what it names. Never repeats the URL: it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AddressError(pub String);

fn refused(why: &str) -> AddressError {
    AddressError(format!(
        "the database's address is not postgres://USER:PASSWORD@HOST:PORT/DATABASE: {why}"
    ))
}

/// Where a server is, and how it is spoken to.
#[derive(Debug, Clone)]
pub struct Address {
    /// All that the driver understands.
    pub config: Config,
    /// Whom we believe to be the server.
    pub tls: Tls,
}

/// `sslmode`, as every client of PostgreSQL has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tls {
    /// Nothing is encrypted.
    Off,
    /// Encrypted, whoever the server is.
    Unchecked,
    /// The server's certificate is signed by one of these.
    Signed(Roots),
    /// And it names the host.
    Full(Roots),
}

/// `sslrootcert`: who may sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Roots {
    /// The machine's own list.
    System,
    /// A file with certificates.
    File(PathBuf),
}

/// Reads `postgres://USER:PASSWORD@HOST:PORT/DATABASE?OPTIONS`. No error repeats the URL: it may hold
/// a password.
pub fn read(url: &str) -> Result<Address, AddressError> {
    let (url, ours) = without_ours(url);
    let mut config = Config::from_str(&url).map_err(|error| refused(&reason(&error)))?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(refused("no host"));
    }
    let tls = believed(&ours)?;
    config.ssl_mode(match (&tls, ours.mode.as_deref()) {
        (Tls::Off, _) => SslMode::Disable,
        (Tls::Unchecked, None | Some("prefer" | "allow")) => SslMode::Prefer,
        _ => SslMode::Require,
    });
    if config.get_application_name().is_none() {
        config.application_name("longshore");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT);
    }
    notice_silence(&mut config);
    Ok(Address { config, tls })
}

/// Else TCP would wait a quarter of an hour for a network that swallows packets. What the URL says
/// counts.
fn notice_silence(config: &mut Config) {
    if config.get_keepalives_interval().is_none() && config.get_keepalives_retries().is_none() {
        config.keepalives_idle(KEEPALIVE.0);
        config.keepalives_interval(KEEPALIVE.1);
        config.keepalives_retries(KEEPALIVE.2);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(UNHEARD);
    }
}

impl Address {
    /// What secures connections to it, where the configuration wants that.
    pub fn connector(&self) -> Result<MakeRustlsConnect, AddressError> {
        tls::connector(&self.tls)
    }

    /// Where it is, for people.
    pub fn shown(&self) -> String {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => {
                self.config.get_hostaddrs().first().map_or_else(String::new, ToString::to_string)
            }
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        format!("{host}:{port}")
    }
}

/// The options that the driver lacks.
#[derive(Debug, Default)]
struct Ours {
    mode: Option<String>,
    roots: Option<String>,
}

/// A URL as the driver wants it, and our own options out of it.
fn without_ours(url: &str) -> (String, Ours) {
    let (address, options) = url.split_once('?').unwrap_or((url, ""));
    let mut ours = Ours::default();
    let mut others = Vec::new();
    for option in options.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("sslmode", mode)) => ours.mode = Some(mode.to_owned()),
            Some(("sslrootcert", path)) => ours.roots = Some(path.replace("%2F", "/")),
            _ => others.push(option),
        }
    }
    let mark = if others.is_empty() { "" } else { "?" };
    (format!("{address}{mark}{}", others.join("&")), ours)
}

fn believed(ours: &Ours) -> Result<Tls, AddressError> {
    let roots = ours.roots.as_deref().map(|roots| match roots {
        "system" => Roots::System,
        path => Roots::File(path.into()),
    });
    match (ours.mode.as_deref().unwrap_or("prefer"), roots) {
        ("disable", _) => Ok(Tls::Off),
        // With a list of signers, libpq checks the signature although nobody said so.
        ("require", Some(roots)) => Ok(Tls::Signed(roots)),
        ("allow" | "prefer" | "require", _) => Ok(Tls::Unchecked),
        ("verify-ca", roots) => Ok(Tls::Signed(roots.unwrap_or(Roots::System))),
        ("verify-full", roots) => Ok(Tls::Full(roots.unwrap_or(Roots::System))),
        _ => Err(refused("sslmode is disable, prefer, require, verify-ca or verify-full")),
    }
}

/// What the driver says of a URL; it names options, never values.
fn reason(error: &tokio_postgres::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_how() {
        let read = read("postgresql://me:p%40ss@db.example:5433/orders").unwrap();
        let config = &read.config;
        assert_eq!(
            (config.get_user(), config.get_password(), config.get_dbname()),
            (Some("me"), Some(&b"p@ss"[..]), Some("orders"))
        );
        assert_eq!((read.shown(), read.tls), ("db.example:5433".to_owned(), Tls::Unchecked));
        assert_eq!(config.get_ssl_mode(), SslMode::Prefer);
    }

    #[test]
    fn sslmode_means_what_it_means_to_every_client() {
        let own = || Roots::File("/etc/own.pem".into());
        for (options, tls, mode) in [
            ("", Tls::Unchecked, SslMode::Prefer),
            ("?sslmode=disable&sslrootcert=/etc/own.pem", Tls::Off, SslMode::Disable),
            ("?sslmode=require", Tls::Unchecked, SslMode::Require),
            ("?sslmode=require&sslrootcert=%2Fetc/own.pem", Tls::Signed(own()), SslMode::Require),
            ("?sslmode=verify-ca", Tls::Signed(Roots::System), SslMode::Require),
            (
                "?connect_timeout=3&sslmode=verify-full&sslrootcert=system",
                Tls::Full(Roots::System),
                SslMode::Require,
            ),
            ("?sslrootcert=/etc/own.pem&sslmode=verify-full", Tls::Full(own()), SslMode::Require),
        ] {
            let address = read(&format!("postgres://me@db/orders{options}")).unwrap();
            assert_eq!((address.tls, address.config.get_ssl_mode()), (tls, mode), "{options}");
        }
    }

    #[test]
    fn a_bad_url_is_refused_without_its_password() {
        for url in [
            "postgres://me:s3cret@db:port/x",
            "postgres://me:s3cret@db/x?sslmode=s3cret",
            "postgres://me:s3cret@db/x?s=s3cret",
            "postgres://",
        ] {
            let error = read(url).unwrap_err();
            let told = error.to_string();
            assert!(told.contains("not postgres://USER") && !told.contains("s3cret"), "{told}");
        }
    }
}
