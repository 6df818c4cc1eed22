//! Parses a URL into connection options.

use std::path::PathBuf;
use std::time::Duration;

use mysql_async::{Opts, OptsBuilder, SslOpts, UrlError};

/// A host that vanished sends no FIN: an idle connection is probed after this time.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// An option that the driver lacks: the file with the CA certificate of the server.
const CA_OPTION: &str = "ssl_ca=";

/// An invalid URL. The message never repeats the URL: it may contain a password, and any misplaced
/// part may belong to that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the database's address is not mysql://USER:PASSWORD@HOST:PORT/DATABASE{0}")]
pub(super) struct MysqlUrlError(String);

impl MysqlUrlError {
    pub(super) fn of(error: UrlError) -> Self {
        Self(match error {
            UrlError::Parse(error) => format!(": {error}"),
            UrlError::UnknownParameter { .. } => ": unknown option".to_owned(),
            UrlError::InvalidParamValue { param, .. } => format!(": bad value for `{param}`"),
            _ => String::new(),
        })
    }
}

/// Parses `mysql://USER:PASSWORD@HOST:PORT/DATABASE?OPTIONS`; `mariadb:` means the same. A
/// connection keeps this many `statements` prepared. Options that affect correctness cannot be
/// overridden in the URL.
pub(super) fn parse_url(url: &str, statements: usize) -> Result<Opts, MysqlUrlError> {
    let rest = url.split_once(':').map_or(url, |(_, rest)| rest);
    let (rest, ca) = split_ca_option(rest);
    let opts = Opts::from_url(&format!("mysql:{rest}")).map_err(MysqlUrlError::of)?;
    let ssl = match ca {
        Some(ca) => Some(tls_with_ca(ca, &opts)),
        None => opts.ssl_opts().cloned(),
    };
    let keepalive = opts.tcp_keepalive().unwrap_or(KEEPALIVE);
    let opts = OptsBuilder::from_opts(opts)
        // An UPDATE counts matched rows even if their values do not change, as other databases do.
        .client_found_rows(true)
        .prefer_socket(false)
        .stmt_cache_size(statements)
        .tcp_keepalive(Some(keepalive))
        .ssl_opts(ssl);
    Ok(opts.into())
}

fn tls_with_ca(ca: PathBuf, opts: &Opts) -> SslOpts {
    opts.ssl_opts().cloned().unwrap_or_default().with_root_certs(vec![ca.into()])
}

/// Splits our own option off, and returns the URL for the driver.
fn split_ca_option(url: &str) -> (String, Option<PathBuf>) {
    let (address, options) = url.split_once('?').unwrap_or((url, ""));
    let options = options.split('&').filter(|option| !option.is_empty());
    let (ca, mut others): (Vec<&str>, Vec<&str>) = options.partition(|option| option.starts_with(CA_OPTION));
    // Otherwise the driver rejects a `pool_max` below its default minimum.
    others.insert(0, "pool_min=0");
    let ca = ca.first().and_then(|option| option.strip_prefix(CA_OPTION)).map(PathBuf::from);
    (format!("{address}?{}", others.join("&")), ca)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_how() {
        let opts = parse_url("mariadb://me:p%40ss@db:3307/orders?ssl_ca=/etc/own.pem", 7).unwrap();
        assert_eq!((opts.user(), opts.pass(), opts.tcp_port()), (Some("me"), Some("p@ss"), 3307));
        assert_eq!((opts.stmt_cache_size(), opts.client_found_rows()), (7, true));
        assert_eq!(opts.ssl_opts().unwrap().root_certs().len(), 1);
        assert!(parse_url("mysql://me@db/orders", 7).unwrap().ssl_opts().is_none());
    }

    #[test]
    fn a_bad_url_is_refused_without_its_password() {
        for url in ["mysql:", "mysql://me:s3cret@db/x?s3cret=1", "mysql://me:s3cret@db:port/x"] {
            let error = parse_url(url, 0).unwrap_err().to_string();
            assert!(error.contains("not mysql://USER") && !error.contains("=1"), "{error}");
            assert!(!error.contains("me:s3cret"), "{error}");
        }
    }
}
