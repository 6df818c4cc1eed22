//! From a URL to how a connection is made.

use std::path::PathBuf;
use std::time::Duration;

use mysql_async::{Opts, OptsBuilder, PoolConstraints, PoolOpts, SslOpts};

use super::{CONNECTIONS, error};
use crate::rows::SourceError;

/// Prepared statements kept per connection: a batch has a handful, a worker serves many batches.
const STATEMENTS: usize = 128;
/// How often a silent connection is probed: a server that vanished sends no farewell.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(60);
/// A read must not write, whatever functions it calls.
const SETUP: &str = "SET SESSION TRANSACTION READ ONLY";
/// The option that the driver lacks: a file with the certificate that the server's is signed with.
const CA: &str = "ssl_ca=";

/// Reads `mysql://USER:PASSWORD@HOST:PORT/DATABASE?OPTIONS`. What matters for exactness is not for
/// the options to say.
pub(super) fn read(url: &str) -> Result<Opts, SourceError> {
    let rest = url.split_once(':').map_or(url, |(_, rest)| rest);
    let (rest, ca) = without_ca(rest);
    let opts = Opts::from_url(&format!("mysql:{rest}")).map_err(error::of_url)?;
    let (pool, keepalive) = (pool(&opts), opts.tcp_keepalive().unwrap_or(KEEPALIVE));
    let ssl = ca.map_or_else(|| opts.ssl_opts().cloned(), |ca| Some(signed_by(ca, &opts)));
    let opts = OptsBuilder::from_opts(opts)
        .pool_opts(pool)
        // An UPDATE to the value that is there counts its rows all the same.
        .client_found_rows(true)
        .prefer_socket(false)
        .stmt_cache_size(STATEMENTS)
        .tcp_keepalive(Some(keepalive))
        .ssl_opts(ssl)
        .setup(vec![SETUP]);
    Ok(opts.into())
}

fn pool(opts: &Opts) -> PoolOpts {
    let own = opts.pool_opts();
    let most = own.constraints().max().min(CONNECTIONS);
    own.clone()
        .with_constraints(PoolConstraints::new(0, most).unwrap_or_default())
        // Or each call would have a connection of its own.
        .with_inactive_connection_ttl(own.inactive_connection_ttl().max(IDLE))
        // Sessions keep their statements prepared. They carry nothing else.
        .with_reset_connection(false)
}

fn signed_by(ca: PathBuf, opts: &Opts) -> SslOpts {
    opts.ssl_opts().cloned().unwrap_or_default().with_root_certs(vec![ca.into()])
}

/// A URL as the driver wants it, and our own option out of it.
fn without_ca(url: &str) -> (String, Option<PathBuf>) {
    let (address, options) = url.split_once('?').unwrap_or((url, ""));
    let options = options.split('&').filter(|option| !option.is_empty());
    let (ca, mut others): (Vec<&str>, Vec<&str>) =
        options.partition(|option| option.starts_with(CA));
    // Or the driver would not take a `pool_max` below its own idea of the least.
    others.insert(0, "pool_min=0");
    let ca = ca.first().and_then(|option| option.strip_prefix(CA)).map(PathBuf::from);
    (format!("{address}?{}", others.join("&")), ca)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_how() {
        let opts = read("mariadb://me:p%40ss@db.example:3307/orders?pool_max=4").unwrap();
        assert_eq!(
            (opts.user(), opts.pass(), opts.db_name()),
            (Some("me"), Some("p@ss"), Some("orders"))
        );
        assert_eq!((opts.ip_or_hostname(), opts.tcp_port()), ("db.example", 3307));
        assert_eq!(opts.pool_opts().constraints().max(), 4);
        assert!(opts.client_found_rows() && opts.ssl_opts().is_none());
    }

    #[test]
    fn a_certificate_of_ones_own_may_be_named() {
        let opts = read("mysql://me@db/orders?ssl_ca=/etc/ssl/own.pem&wait_timeout=9").unwrap();
        let ssl = opts.ssl_opts().unwrap();
        assert_eq!(ssl.root_certs().len(), 1);
        assert!(!ssl.accept_invalid_certs() && !ssl.skip_domain_validation());
        assert!(read("mysql://me@db/orders?require_ssl=true").unwrap().ssl_opts().is_some());
    }

    #[test]
    fn a_bad_url_is_refused_without_its_password() {
        for url in ["mysql:", "mysql://me:s3cret@db/x?s3cret=1", "mysql://me:s3cret@[db/x"] {
            let error = read(url).unwrap_err();
            assert!(error.to_string().contains("not mysql://USER"), "{error}");
            assert!(!error.is_retryable());
        }
        let error = read("mysql://me:s3cret@db:port/x").unwrap_err().to_string();
        assert!(error.contains("invalid port") && !error.contains("s3cret"), "{error}");
    }
}
