//! Connection options from a URL.

use std::time::Duration;

use longshore_pool::database::mysql::connection_url;
use mysql_async::{Opts, OptsBuilder, PoolConstraints, PoolOpts};

use super::MAX_CONNECTIONS;
use crate::rows::SourceError;

/// Prepared statements cached per connection: a batch has a handful, a worker serves many batches.
const MAX_CACHED_STATEMENTS: usize = 128;
/// Minimum time that an idle connection is kept.
const MIN_IDLE_TTL: Duration = Duration::from_secs(60);
/// A read must not write, whatever functions it calls.
const SESSION_SETUP: &str = "SET SESSION TRANSACTION READ ONLY";

/// Parses `mysql://USER:PASSWORD@HOST:PORT/DATABASE?OPTIONS` as the pool's database workers do, for
/// several read-only connections.
pub(super) fn parse_url(url: &str) -> Result<Opts, SourceError> {
    let opts = connection_url::parse_url(url, MAX_CACHED_STATEMENTS);
    let opts = opts.map_err(|error| SourceError::Data(error.to_string()))?;
    let pool = pool(&opts);
    Ok(OptsBuilder::from_opts(opts).pool_opts(pool).setup(vec![SESSION_SETUP]).into())
}

fn pool(opts: &Opts) -> PoolOpts {
    let own = opts.pool_opts();
    let max = own.constraints().max().min(MAX_CONNECTIONS);
    own.clone()
        .with_constraints(PoolConstraints::new(0, max).unwrap_or_default())
        // Without idle connections each call would open its own.
        .with_inactive_connection_ttl(own.inactive_connection_ttl().max(MIN_IDLE_TTL))
        // A reset would drop the prepared statements. Sessions have no other state.
        .with_reset_connection(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_how() {
        let opts = parse_url("mariadb://me:p%40ss@db.example:3307/orders?pool_max=4").unwrap();
        assert_eq!((opts.user(), opts.pass(), opts.db_name()), (Some("me"), Some("p@ss"), Some("orders")));
        assert_eq!((opts.ip_or_hostname(), opts.tcp_port()), ("db.example", 3307));
        assert_eq!(opts.pool_opts().constraints().max(), 4);
        assert!(opts.client_found_rows() && opts.ssl_opts().is_none());
    }

    #[test]
    fn a_certificate_of_ones_own_may_be_named() {
        let opts = parse_url("mysql://me@db/orders?ssl_ca=/etc/ssl/own.pem&wait_timeout=9").unwrap();
        let ssl = opts.ssl_opts().unwrap();
        assert_eq!(ssl.root_certs().len(), 1);
        assert!(!ssl.accept_invalid_certs() && !ssl.skip_domain_validation());
        assert!(parse_url("mysql://me@db/orders?require_ssl=true").unwrap().ssl_opts().is_some());
    }

    #[test]
    fn a_bad_url_is_refused_without_its_password() {
        for url in ["mysql:", "mysql://me:s3cret@db/x?s3cret=1", "mysql://me:s3cret@[db/x"] {
            let error = parse_url(url).unwrap_err();
            assert!(error.to_string().contains("not mysql://USER"), "{error}");
            assert!(!error.is_retryable());
        }
        let error = parse_url("mysql://me:s3cret@db:port/x").unwrap_err().to_string();
        assert!(error.contains("invalid port") && !error.contains("s3cret"), "{error}");
    }
}
