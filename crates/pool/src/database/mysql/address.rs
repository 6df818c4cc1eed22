//! From a URL to how a connection is made.

use std::path::PathBuf;
use std::time::Duration;

use mysql_async::{Opts, OptsBuilder, SslOpts};

use super::error;
use crate::database::error::DbError;

/// A server that vanished sends no farewell: a silent connection is probed after this time.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The option that the driver lacks: a file with the certificate that the server's is signed with.
const CA: &str = "ssl_ca=";

/// Reads `mysql://USER:PASSWORD@HOST:PORT/DATABASE?OPTIONS`; `mariadb:` means the same.
pub(super) fn read(url: &str, statements: usize) -> Result<Opts, DbError> {
    let rest = url.split_once(':').map_or(url, |(_, rest)| rest);
    let (rest, ca) = without_ca(rest);
    let opts = Opts::from_url(&format!("mysql:{rest}")).map_err(error::of_url)?;
    let ssl = match ca {
        Some(ca) => Some(signed_by(ca, &opts)),
        None => opts.ssl_opts().cloned(),
    };
    let keepalive = opts.tcp_keepalive().unwrap_or(KEEPALIVE);
    let opts = OptsBuilder::from_opts(opts)
        // An UPDATE to the value that is there counts its rows all the same, as elsewhere.
        .client_found_rows(true)
        .prefer_socket(false)
        .stmt_cache_size(statements)
        .tcp_keepalive(Some(keepalive))
        .ssl_opts(ssl);
    Ok(opts.into())
}

fn signed_by(ca: PathBuf, opts: &Opts) -> SslOpts {
    opts.ssl_opts().cloned().unwrap_or_default().with_root_certs(vec![ca.into()])
}

/// A URL as the driver wants it, and our own option out of it.
fn without_ca(url: &str) -> (String, Option<PathBuf>) {
    let Some((address, options)) = url.split_once('?') else { return (url.to_owned(), None) };
    let options = options.split('&').filter(|option| !option.is_empty());
    let (ca, others): (Vec<&str>, Vec<&str>) = options.partition(|option| option.starts_with(CA));
    let ca = ca.first().and_then(|option| option.strip_prefix(CA)).map(PathBuf::from);
    let mark = if others.is_empty() { "" } else { "?" };
    (format!("{address}{mark}{}", others.join("&")), ca)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_how() {
        let opts = read("mariadb://me:p%40ss@db:3307/orders?ssl_ca=/etc/own.pem", 7).unwrap();
        assert_eq!((opts.user(), opts.pass(), opts.tcp_port()), (Some("me"), Some("p@ss"), 3307));
        assert_eq!((opts.stmt_cache_size(), opts.client_found_rows()), (7, true));
        assert_eq!(opts.ssl_opts().unwrap().root_certs().len(), 1);
        assert!(read("mysql://me@db/orders", 7).unwrap().ssl_opts().is_none());
    }

    #[test]
    fn a_bad_url_is_refused_without_its_password() {
        for url in ["mysql:", "mysql://me:s3cret@db/x?s3cret=1", "mysql://me:s3cret@db:port/x"] {
            let error = read(url, 0).unwrap_err().to_string();
            assert!(error.contains("not mysql://USER") && !error.contains("=1"), "{error}");
            assert!(!error.contains("me:s3cret"), "{error}");
        }
    }
}
