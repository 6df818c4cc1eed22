//! From a PostgreSQL URL to how a connection is made: where, as whom, and whom we believe to be the
//! server. The store, rows of batches and database workers all read their URLs here, so that
//! `sslmode` means the same everywhere.

mod address;
mod pool;
mod tls;

pub use address::{Address, AddressError, Roots, Tls, read};
pub use pool::{ConnectionManager, OpenConnection, Pool, PoolError, PooledConnection};
