//! Parses PostgreSQL URLs: host, credentials, and which TLS certificates the client accepts. The
//! store, the rows of batches and database workers all parse their URLs here, so that `sslmode`
//! means the same everywhere.

mod connect;
mod pool;
mod tls;
mod url;

pub use tokio_postgres::config::Host;

pub use pool::{ConnectionManager, OpenConnection, Pool, PoolError, PooledConnection, Timeline};
pub use url::{CaSource, PostgresUrl, TlsMode, UrlError, parse};
