//! The server's standbys, for `longshore doctor`.

use longshore_core::{Error, Result};
use tokio_postgres::Row;

use crate::connect::{address, connect};
use crate::error::Translate;

/// How a server is replicated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicationStatus {
    /// Hosts in the URL.
    pub hosts: usize,
    /// The setting `synchronous_commit`.
    pub synchronous_commit: String,
    /// The standbys that are connected.
    pub standbys: Vec<Standby>,
}

/// A standby as the primary sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standby {
    /// Its `application_name`.
    pub name: String,
    /// As `streaming`; `None` if the user lacks the role `pg_monitor`.
    pub state: Option<String>,
    /// Whether commits wait for it.
    pub synchronous: bool,
    /// Bytes of WAL that it has not applied yet.
    pub lag_bytes: Option<i64>,
}

const STANDBYS: &str = "SELECT r.application_name, r.state, r.sync_state,
    pg_wal_lsn_diff(pg_current_wal_lsn(), r.replay_lsn)::bigint FROM pg_stat_replication r
    WHERE r.application_name <> 'pg_basebackup' ORDER BY r.application_name, r.pid";

/// Reads how the server of a URL is replicated.
pub async fn replication_status(url: &str) -> Result<ReplicationStatus> {
    let address = address(url)?;
    let hosts = address.config.get_hosts().len().max(address.config.get_hostaddrs().len());
    let (client, connection) = connect(&address).await?;
    let read = async {
        let row =
            client.query_one("SELECT current_setting('synchronous_commit')", &[]).await.or_translate()?;
        let synchronous_commit = row.try_get(0).or_translate()?;
        let rows = client.query(STANDBYS, &[]).await.or_translate()?;
        let standbys = rows.iter().map(read_standby).collect::<Result<_>>()?;
        Ok(ReplicationStatus { hosts, synchronous_commit, standbys })
    };
    tokio::select! {
        status = read => status,
        _ = connection => Err(Error::unavailable("the connection to PostgreSQL was lost")),
    }
}

fn read_standby(row: &Row) -> Result<Standby> {
    let sync_state: Option<String> = row.try_get(2).or_translate()?;
    Ok(Standby {
        name: row.try_get(0).or_translate()?,
        state: row.try_get(1).or_translate()?,
        synchronous: sync_state.is_some_and(|state| matches!(state.as_str(), "sync" | "quorum")),
        lag_bytes: row.try_get(3).or_translate()?,
    })
}
