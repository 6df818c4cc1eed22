//! Takes over the claims of an earlier server process.

use std::collections::HashMap;

use longshore::store::LeasedUnit;
use longshore::worker_session::{Lease, NewSession};
use longshore::{Error, Kind, SessionId, UnitId};

use super::state::ServerState;
use super::{ServerError, ServerOptions};
use crate::script::{self, KIND};

/// Opens a session and adopts the units of earlier ones. Also returns the leases that workers know.
pub(super) async fn restore_session(
    options: &ServerOptions,
    state: &mut ServerState,
    session: SessionId,
) -> Result<(Vec<LeasedUnit>, HashMap<UnitId, Lease>), ServerError> {
    let store = &options.store;
    store.open_session(new_session(options, session)).await?;
    let previous = state.sessions.clone();
    state.sessions.push(session);
    let mut held_leases = Vec::new();
    for earlier in &previous {
        match store.leases_of(*earlier).await {
            Ok(held) => held_leases.extend(held),
            Err(Error::SessionGone(_) | Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // Saved before the adoption: if the process ends in between, the next one still knows the
    // workers' leases.
    let worker_leases =
        state.record_worker_leases(&held_leases).into_iter().map(|lease| (lease.unit, lease)).collect();
    let saved = state.save(&options.state);
    saved.map_err(|error| ServerError::Io(options.state.display().to_string(), error))?;
    let mut held = Vec::new();
    for earlier in previous {
        match store.adopt(earlier, session).await {
            Ok(units) => held.extend(units),
            Err(Error::SessionGone(_) | Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    state.sessions = vec![session];
    let saved = state.save(&options.state);
    saved.map_err(|error| ServerError::Io(options.state.display().to_string(), error))?;
    if !held.is_empty() {
        tracing::info!(scripts = held.len(), "adopted the units of an earlier server process");
    }
    Ok((held, worker_leases))
}

fn new_session(options: &ServerOptions, session: SessionId) -> NewSession {
    NewSession {
        kinds: Kind::new(KIND).into_iter().map(|kind| (kind, script::default_policy())).collect(),
        slots: u32::MAX / 2,
        ttl: options.timing.store_ttl,
        ..NewSession::new(session, format!("dispatch server, process {}", std::process::id()))
    }
}
