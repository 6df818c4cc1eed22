//! Decides on each unit of a send, in order, from data that was read and locked together.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use longshore_core::admission::UnitDependencies;
use longshore_core::sql_encoding::dedup_window;
use longshore_core::store::{SendRejection, SendResult};
use longshore_core::unit::{Dedup, DedupWindow};
use longshore_core::unit_state::{Event, TransitionInput, transition};
use longshore_core::{NewUnit, Policy, Result, TenantId, Timestamp, UnitId, UnitState};
use tokio_postgres::Row;
use uuid::Uuid;

use super::insert::{self, NewRow};
use super::lane_key;
use crate::dependency_outbox;
use crate::error::conflict;
use crate::finish::{self, UnitChange};
use crate::queue_limits::QueueLimits;
use crate::row::{BULK, flag, state, value};
use crate::streams::Stream;
use crate::tx::Tx;
use crate::typed_params::{SqlParam, unit_id, uuid, uuids};

/// How the capacity of lanes, queues and tenants is checked.
pub(super) enum CapacityPolicy {
    /// It is not checked.
    Unlimited,
    /// Against these limits, which are locked.
    Checked(QueueLimits),
    /// It was checked beforehand: the rejection of each unit, if any. Capacity for the others is
    /// reserved.
    Reserved(Vec<Option<SendRejection>>),
}

impl CapacityPolicy {
    fn stream_rejection(&self, at: usize, stream: &Stream) -> Option<SendRejection> {
        match self {
            Self::Unlimited => None,
            Self::Checked(limits) => limits.stream_rejection(stream),
            Self::Reserved(rejections) => {
                let rejection = rejections.get(at).cloned().flatten();
                rejection.filter(|rejection| !matches!(rejection, SendRejection::Full { .. }))
            }
        }
    }

    fn admit(&mut self, at: usize, lane: i64, unit: &NewUnit) -> Option<SendRejection> {
        match self {
            Self::Unlimited => None,
            Self::Checked(limits) => limits.capacity.admit(lane, unit.stored_bytes()),
            Self::Reserved(rejections) => rejections.get(at).cloned().flatten(),
        }
    }

    fn release(&mut self, lane: i64, unit: &NewUnit) {
        if let Self::Checked(limits) = self {
            limits.capacity.release(lane, unit.stored_bytes());
        }
    }
}

/// The data that decisions depend on, and the decisions.
pub(super) struct AdmissionPlan<'u> {
    now: Timestamp,
    capacity: CapacityPolicy,
    /// Units that the store has already, and whether they belong to the sender's tenant.
    existing: HashMap<UnitId, bool>,
    /// Units that units of this send may depend on.
    awaited: HashMap<UnitId, (TenantId, UnitState)>,
    holders: HashMap<Vec<u8>, KeyHolder>,
    /// Units that lose their dedup key.
    freed: Vec<Uuid>,
    rows: Vec<NewRow<'u>>,
    /// Dependencies to write: `(needed, dependant)`.
    edges: Vec<(UnitId, UnitId)>,
    /// Units that are cancelled at once, and the dependency that failed.
    ended: Vec<(UnitId, UnitId)>,
}

/// The unit that holds a dedup key.
struct KeyHolder {
    id: UnitId,
    window: DedupWindow,
    ended: Option<Timestamp>,
}

impl<'u> AdmissionPlan<'u> {
    /// Reads and locks everything that the decisions depend on.
    pub(super) async fn load(
        tx: &mut Tx<'_>,
        units: &[NewUnit],
        streams: &[Arc<Stream>],
        capacity: CapacityPolicy,
    ) -> Result<Self> {
        let mut plan = Self {
            now: tx.now,
            capacity,
            existing: HashMap::new(),
            awaited: HashMap::new(),
            holders: HashMap::new(),
            freed: Vec::new(),
            rows: Vec::new(),
            edges: Vec::new(),
            ended: Vec::new(),
        };
        let keys = units
            .iter()
            .zip(streams)
            .filter_map(|(unit, stream)| unit.dedup.as_ref().map(|dedup| lane_key(stream.lane, &dedup.key)));
        let keys: Vec<Vec<u8>> = keys.collect();
        let needs: Vec<Uuid> =
            units.iter().flat_map(|unit| &unit.dependencies.units).map(|id| uuid(*id)).collect();
        if !keys.is_empty() || !needs.is_empty() {
            plan.lock_dependencies(tx, &keys, &needs).await?;
        }
        let ids = uuids(units.iter().map(|unit| &unit.id));
        let tenants: Vec<&str> = units.iter().map(|unit| unit.tenant.as_str()).collect();
        let sql = "SELECT u.id, l.tenant = n.tenant FROM unnest($1, $2) n (id, tenant)
            JOIN longshore_unit u ON u.id = n.id JOIN longshore_stream s ON s.num = u.stream
            JOIN longshore_lane l ON l.num = s.lane";
        for row in tx.query(sql, &[&ids, &tenants]).await? {
            plan.existing.insert(unit_id(value(&row, 0)?), value(&row, 1)?);
        }
        Ok(plan)
    }

    /// Reads the holders of the dedup keys, and the dependencies. They are locked, so that a
    /// transaction that ends one of them has either done so already or will see the new dependants.
    /// In a caller's transaction, which may stay open for long, they are not locked: changes in the
    /// meantime are handled after its commit.
    async fn lock_dependencies(
        &mut self,
        tx: &mut Tx<'_>,
        keys: &Vec<Vec<u8>>,
        needs: &Vec<Uuid>,
    ) -> Result<()> {
        // An empty list is omitted: PostgreSQL would search for it in the first suitable index.
        let (which, params): (_, &[&dyn SqlParam]) = match (keys.is_empty(), needs.is_empty()) {
            (false, true) => ("dedup_key = ANY($1)", &[keys]),
            (true, _) => ("id = ANY($1)", &[needs]),
            (false, false) => ("dedup_key = ANY($1) OR id = ANY($2)", &[keys, needs]),
        };
        let columns = "SELECT id, stream, state, sort_key, flags, dedup_key FROM";
        let sql = match tx.is_caller_transaction() {
            true => format!("{columns} longshore_unit_current WHERE {which} ORDER BY id"),
            false => format!("{columns} longshore_unit WHERE {which} ORDER BY id FOR UPDATE"),
        };
        let mut rows = tx.query(&sql, params).await?;
        let is_bulk = |row: &Row| Ok(value::<i16>(row, 2)? == i16::from(BULK));
        let bulk: Vec<bool> = rows.iter().map(is_bulk).collect::<Result<_>>()?;
        if bulk.contains(&true) {
            finish::settle(tx, needs).await?;
            rows = tx.query(&sql, params).await?;
        }
        let nums: Result<Vec<i64>> = rows.iter().map(|row| value(row, 1)).collect();
        let cache = Arc::clone(&tx.streams);
        let streams = cache.by_num(tx, nums?).await?;
        for row in &rows {
            let (id, state) = (unit_id(value(row, 0)?), state(value(row, 2)?)?);
            let sort_key = Timestamp::from_micros(value(row, 3)?);
            if let Some(stream) = streams.get(&value(row, 1)?) {
                self.awaited.insert(id, (stream.tenant.clone(), state));
            }
            let window = dedup_window(value(row, 4)?, sort_key);
            if let Some(key) = value::<Option<Vec<u8>>>(row, 5)? {
                let ended = state.is_final().then_some(sort_key);
                self.holders.insert(key, KeyHolder { id, window, ended });
            }
        }
        Ok(())
    }

    /// Decides on one unit. The units before it count as stored.
    pub(super) fn decide(&mut self, at: usize, unit: &'u NewUnit, stream: &Stream) -> SendResult {
        let existing = self.existing.get(&unit.id).copied();
        if existing == Some(false) {
            return SendResult::Rejected(SendRejection::IdTaken(unit.id));
        }
        // A unit that is stored already is not new, and needs no capacity.
        if existing.is_none()
            && let Some(rejection) = self.capacity.stream_rejection(at, stream)
        {
            return SendResult::Rejected(rejection);
        }
        if let Some(dedup) = &unit.dedup
            && let Some(taken) = self.holder(&lane_key(stream.lane, &dedup.key), dedup)
            && taken != unit.id
        {
            return dedup.on_duplicate.answer(taken);
        }
        let state_of = |needs: UnitId| {
            let found = self.awaited.get(&needs).filter(|(tenant, _)| *tenant == unit.tenant);
            Ok::<_, Infallible>(found.map(|(_, state)| *state))
        };
        let Ok(dependencies) = UnitDependencies::resolve(&unit.dependencies, state_of);
        let dependencies = match dependencies {
            Ok(dependencies) => dependencies,
            Err(unknown) => return SendResult::Rejected(unknown),
        };
        if existing.is_some() {
            return SendResult::Created(unit.id);
        }
        if let Some(full) = self.capacity.admit(at, stream.lane, unit) {
            return SendResult::Rejected(full);
        }
        self.admit(unit, stream, dependencies);
        SendResult::Created(unit.id)
    }

    /// The unit that holds a key. A holder loses it if its window does not cover `wanted`.
    fn holder(&mut self, key: &[u8], wanted: &Dedup) -> Option<UnitId> {
        let KeyHolder { id, window, ended } = self.holders.get(key)?;
        let (id, holds) = (*id, window.keeps_key_against(*ended, wanted.window));
        if holds {
            return Some(id);
        }
        self.holders.remove(key);
        match self.rows.iter_mut().find(|row| row.unit.id == id) {
            Some(row) => row.dedup = None,
            None => self.freed.push(uuid(id)),
        }
        None
    }

    fn admit(&mut self, unit: &'u NewUnit, stream: &Stream, dependencies: UnitDependencies) {
        let mut row = NewRow::new(self.now, unit, stream, dependencies.open.len());
        let window = unit.dedup.as_ref().map(|dedup| dedup.window);
        let state = match dependencies.failed {
            Some(failed) => {
                self.capacity.release(stream.lane, unit);
                self.ended.push((unit.id, failed));
                if window == Some(DedupWindow::WhileLive) {
                    row.dedup = None;
                }
                UnitState::Cancelled
            }
            None => row.state,
        };
        if let (Some(key), Some(window)) = (&row.dedup, window) {
            let ended = dependencies.failed.map(|_| self.now);
            self.holders.insert(key.clone(), KeyHolder { id: unit.id, window, ended });
        }
        self.existing.insert(unit.id, true);
        self.awaited.insert(unit.id, (unit.tenant.clone(), state));
        self.edges.extend(dependencies.open.iter().map(|needs| (*needs, unit.id)));
        self.rows.push(row);
    }

    /// Writes the decisions.
    pub(super) async fn write(self, tx: &mut Tx<'_>) -> Result<()> {
        if !self.freed.is_empty() {
            // If one was retried in the meantime it keeps its key, and the whole send is decided
            // again.
            let sql = "UPDATE longshore_unit SET dedup_key = NULL
                WHERE id = ANY($1) AND state IN (4, 5, 6)";
            if tx.execute(sql, &[&self.freed]).await? != self.freed.len() as u64 {
                return Err(conflict());
            }
        }
        insert::insert_admitted(tx, &self.rows).await?;
        write_edges(tx, &self.edges).await?;
        cancel_with_failed_dependencies(tx, &self.ended).await
    }
}

/// Records the units that blocked units wait for.
pub(crate) async fn write_edges(tx: &mut Tx<'_>, edges: &[(UnitId, UnitId)]) -> Result<()> {
    if edges.is_empty() {
        return Ok(());
    }
    let needs = uuids(edges.iter().map(|(needs, _)| needs));
    let units = uuids(edges.iter().map(|(_, unit)| unit));
    tx.execute(
        "INSERT INTO longshore_dependency (depends_on, unit) SELECT * FROM unnest($1, $2)",
        &[&needs, &units],
    )
    .await?;
    if tx.is_caller_transaction() {
        return dependency_outbox::enqueue(tx, edges.iter().map(|(needs, _)| needs)).await;
    }
    finish::settle(tx, &needs).await?;
    tx.execute(
        "UPDATE longshore_unit SET flags = flags | $2 WHERE id = ANY($1)",
        &[&needs, &flag::HAS_DEPENDANTS],
    )
    .await?;
    Ok(())
}

/// Cancels units with failed dependencies, as if they had been blocked until now.
async fn cancel_with_failed_dependencies(tx: &mut Tx<'_>, ended: &[(UnitId, UnitId)]) -> Result<()> {
    if ended.is_empty() {
        return Ok(());
    }
    let mut rows = finish::lock_rows(tx, ended.iter().map(|(unit, _)| unit)).await?;
    let mut changes = Vec::new();
    for (unit, failed) in ended {
        let Some(row) = rows.remove(unit) else { continue };
        let input = TransitionInput { state: UnitState::Blocked, ..row.transition_input()? };
        let event = Event::DependencyFailed(*failed);
        let step = transition(&input, &event, &Policy::default(), tx.now)?;
        changes.push(UnitChange::step(row, step));
    }
    finish::apply(tx, changes).await
}
