//! What identifies the database behind a connection, read from that connection alone.

use std::sync::{Mutex, PoisonError};

use tokio::time::timeout;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use super::server::ANSWER_TIMEOUT;
use crate::rows::fingerprint::{POSTGRES, POSTGRES_DATABASE};
use crate::rows::{DatabaseFingerprint, SourceError};

/// The database of the first connection. A name or an address may lead to another one later.
#[derive(Debug, Default)]
pub(super) struct FirstDatabase(Mutex<Option<DatabaseFingerprint>>);

impl FirstDatabase {
    /// Fails unless the database is that of the first connection.
    pub(super) fn require(&self, found: &DatabaseFingerprint) -> Result<(), SourceError> {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        found.require(Some(&*first.get_or_insert_with(|| found.clone())))
    }
}

/// Why a database was not identified.
pub(super) enum IdentityError {
    NoAnswer,
    Server(Error),
}

/// The fingerprint of the connection's database; `None` if the server does not tell.
pub(super) async fn read(connection: &Client) -> Result<Option<DatabaseFingerprint>, IdentityError> {
    for (product, sql) in [POSTGRES, POSTGRES_DATABASE] {
        match timeout(ANSWER_TIMEOUT, connection.simple_query(sql)).await {
            Err(_) => return Err(IdentityError::NoAnswer),
            Ok(Ok(answer)) => return Ok(fingerprint(product, &answer)),
            // The user may not ask for the cluster's identifier, or the server is no real PostgreSQL.
            Ok(Err(error)) if error.code().is_some_and(|code| code.code().starts_with("42")) => {}
            Ok(Err(error)) => return Err(IdentityError::Server(error)),
        }
    }
    Ok(None)
}

fn fingerprint(product: &str, answer: &[SimpleQueryMessage]) -> Option<DatabaseFingerprint> {
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    })?;
    let part = |at: usize| row.get(at).map(str::to_owned);
    let (server, database, schemas) = (part(0), part(1), part(2));
    Some(DatabaseFingerprint { server, database, schemas, ..DatabaseFingerprint::new(product) })
}
