//! Parses a connection URL.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, Connection, Error, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{connect, tls};

/// TCP keepalive, because a server that vanished sends no FIN: idle time before the first probe,
/// interval, number of probes.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(5), Duration::from_secs(2), 3);
/// How long sent data may stay unacknowledged.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long connecting to one address of a server may take. Several hosts share it.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What is wrong with a URL, or with a file it names. Never repeats the URL: it may hold a
/// password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UrlError(pub String);

fn refused(why: &str) -> UrlError {
    UrlError(format!("the database's address is not postgres://USER:PASSWORD@HOST:PORT/DATABASE: {why}"))
}

/// Where a server is, and how to connect to it.
#[derive(Debug, Clone)]
pub struct PostgresUrl {
    /// The options that the driver understands.
    pub config: Config,
    /// How the server's certificate is verified.
    pub tls: TlsMode,
}

/// `sslmode`, as every client of PostgreSQL has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsMode {
    /// No encryption.
    Disable,
    /// Encrypted, without verification of the certificate.
    NoVerify,
    /// The certificate must be signed by one of these authorities.
    VerifyCa(CaSource),
    /// The certificate must be signed, and issued for the host's name.
    VerifyFull(CaSource),
}

/// `sslrootcert`: the trusted certificate authorities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaSource {
    /// The system's list.
    System,
    /// A PEM file.
    File(PathBuf),
}

/// Parses `postgres://USER:PASSWORD@HOST:PORT/DATABASE?OPTIONS`. Errors never repeat the URL: it
/// may hold a password.
pub fn parse(url: &str) -> Result<PostgresUrl, UrlError> {
    // The driver would also take `host=… password=…`, of which a message cannot tell the password.
    if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(refused("no postgres://"));
    }
    let (url, tls_options) = split_tls_options(url)?;
    let mut config = Config::from_str(&url).map_err(|error| refused(&reason(&error)))?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(refused("no host"));
    }
    // The rest of a password, which messages would show as the host.
    if config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(name) if name.contains('@'))) {
        return Err(refused("an @ in the password is written %40"));
    }
    let tls = tls_mode(&tls_options)?;
    config.ssl_mode(match (&tls, tls_options.mode.as_deref()) {
        (TlsMode::Disable, _) => SslMode::Disable,
        (TlsMode::NoVerify, None | Some("prefer" | "allow")) => SslMode::Prefer,
        _ => SslMode::Require,
    });
    if config.get_application_name().is_none() {
        config.application_name("longshore");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    set_tcp_timeouts(&mut config);
    Ok(PostgresUrl { config, tls })
}

/// Sets keepalive and timeout unless the URL does: TCP would wait a quarter of an hour for a
/// network that drops packets.
fn set_tcp_timeouts(config: &mut Config) {
    if config.get_keepalives_interval().is_none() && config.get_keepalives_retries().is_none() {
        config.keepalives_idle(KEEPALIVE.0);
        config.keepalives_interval(KEEPALIVE.1);
        config.keepalives_retries(KEEPALIVE.2);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(TCP_USER_TIMEOUT);
    }
}

impl PostgresUrl {
    /// Makes TLS connections, where the configuration asks for TLS.
    pub fn connector(&self) -> Result<MakeRustlsConnect, UrlError> {
        tls::connector(&self.tls)
    }

    /// Opens a connection to the first host that answers; a host that is silent does not keep it from the next one. The
    /// caller limits the time, and polls the connection.
    pub async fn connect(
        &self,
        tls: &MakeRustlsConnect,
    ) -> Result<(Client, Connection<Socket, impl AsyncRead + AsyncWrite + Unpin + use<>>), Error> {
        connect::connect(&self.config, tls).await
    }

    /// Host and port, for messages.
    pub fn host_and_port(&self) -> String {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => self.config.get_hostaddrs().first().map_or_else(String::new, ToString::to_string),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        format!("{host}:{port}")
    }
}

/// The TLS options, which the driver does not parse.
#[derive(Debug, Default)]
struct TlsOptions {
    mode: Option<String>,
    roots: Option<String>,
}

/// Splits the TLS options from a URL.
fn split_tls_options(url: &str) -> Result<(String, TlsOptions), UrlError> {
    let (address, options) = url.split_once('?').unwrap_or((url, ""));
    let mut tls = TlsOptions::default();
    let mut others = Vec::new();
    for option in options.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("sslmode", mode)) => tls.mode = Some(mode.to_owned()),
            Some(("sslrootcert", path)) => tls.roots = Some(decode(path)?),
            _ => others.push(option),
        }
    }
    let mark = if others.is_empty() { "" } else { "?" };
    Ok((format!("{address}{mark}{}", others.join("&")), tls))
}

/// Decodes the percent-encoding of an option.
fn decode(value: &str) -> Result<String, UrlError> {
    let decoded = percent_decode_str(value).decode_utf8();
    Ok(decoded.map_err(|_| refused("sslrootcert is not UTF-8"))?.into_owned())
}

fn tls_mode(options: &TlsOptions) -> Result<TlsMode, UrlError> {
    let roots = options.roots.as_deref().map(|roots| match roots {
        "system" => CaSource::System,
        path => CaSource::File(path.into()),
    });
    match (options.mode.as_deref().unwrap_or("prefer"), roots) {
        ("disable", _) => Ok(TlsMode::Disable),
        // With `sslrootcert`, libpq verifies the signature in this mode too.
        ("require", Some(roots)) => Ok(TlsMode::VerifyCa(roots)),
        ("allow" | "prefer" | "require", _) => Ok(TlsMode::NoVerify),
        ("verify-ca", roots) => Ok(TlsMode::VerifyCa(roots.unwrap_or(CaSource::System))),
        ("verify-full", roots) => Ok(TlsMode::VerifyFull(roots.unwrap_or(CaSource::System))),
        _ => Err(refused("sslmode is disable, prefer, require, verify-ca or verify-full")),
    }
}

/// The driver's error; it names options, never values. An unknown option may be a part of the password.
fn reason(error: &tokio_postgres::Error) -> String {
    let text = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    if text.starts_with("unknown option") { "unknown option".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_how() {
        let read = parse("postgresql://me:p%40ss@db.example:5433/orders").unwrap();
        let config = &read.config;
        assert_eq!(
            (config.get_user(), config.get_password(), config.get_dbname()),
            (Some("me"), Some(&b"p@ss"[..]), Some("orders"))
        );
        assert_eq!((read.host_and_port(), read.tls), ("db.example:5433".to_owned(), TlsMode::NoVerify));
        assert_eq!(config.get_ssl_mode(), SslMode::Prefer);
    }

    #[test]
    fn sslmode_means_what_it_means_to_every_client() {
        let own = || CaSource::File("/etc/own.pem".into());
        for (options, tls, mode) in [
            ("", TlsMode::NoVerify, SslMode::Prefer),
            ("?sslmode=disable&sslrootcert=/etc/own.pem", TlsMode::Disable, SslMode::Disable),
            ("?sslmode=require", TlsMode::NoVerify, SslMode::Require),
            ("?sslmode=require&sslrootcert=%2Fetc/own.pem", TlsMode::VerifyCa(own()), SslMode::Require),
            ("?sslmode=verify-ca", TlsMode::VerifyCa(CaSource::System), SslMode::Require),
            (
                "?connect_timeout=3&sslmode=verify-full&sslrootcert=system",
                TlsMode::VerifyFull(CaSource::System),
                SslMode::Require,
            ),
            ("?sslrootcert=/etc/own.pem&sslmode=verify-full", TlsMode::VerifyFull(own()), SslMode::Require),
            ("?sslmode=verify-ca&sslrootcert=%2fetc%2Fo%77n.pem", TlsMode::VerifyCa(own()), SslMode::Require),
        ] {
            let address = parse(&format!("postgres://me@db/orders{options}")).unwrap();
            assert_eq!((address.tls, address.config.get_ssl_mode()), (tls, mode), "{options}");
        }
    }

    #[test]
    fn a_bad_url_is_refused_without_its_password() {
        for url in [
            "postgres://me:s3cret@db:port/x",
            "postgres://me:s3cret@db/x?sslmode=s3cret",
            "postgres://me:s3cret@db/x?s=s3cret",
            "postgres://me@db/x?password=x&s3cret=1",
            "postgres://me:x@s3cret@db/x",
            "postgres://me@db/x?sslrootcert=s3cret%ff",
            "host=db password=s3cret",
            "host=db password=s3cret s3cret=1",
            "postgres://",
        ] {
            let error = parse(url).unwrap_err();
            let message = error.to_string();
            assert!(message.contains("not postgres://USER") && !message.contains("s3cret"), "{message}");
        }
    }
}
