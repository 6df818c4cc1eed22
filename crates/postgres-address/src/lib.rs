//! Parses PostgreSQL URLs: host, credentials, and which TLS certificates the client accepts. The
//! store, the rows of batches and database workers all parse their URLs here, so that `sslmode`
//! means the same everywhere.

mod tls;
mod url;

pub use url::{Address, AddressError, Roots, Tls, read};
