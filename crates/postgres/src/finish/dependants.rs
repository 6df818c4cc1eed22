//! Releases units after their dependencies ended.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;

use longshore_core::admission::UnitDependencies;
use longshore_core::unit_state::{Event, transition};
use longshore_core::{Policy, Result, UnitId, UnitState};
use uuid::Uuid;

use super::write::{UnitChange, apply, lock_rows};
use crate::dependency_outbox;
use crate::error::damaged;
use crate::row::{Columns, UnitAttributes, UnitRow, flag, small, value};
use crate::tx::Tx;
use crate::typed_params::{unit_id, uuid, uuids};

/// Releases the dependants of units that ended; the flag says whether the unit succeeded. In a
/// caller's transaction this goes to the outbox, since other transactions may need the same units;
/// and so does what exceeds [`Tx::dependants_left`].
pub(crate) async fn release_dependants(tx: &mut Tx<'_>, ended: Vec<(UnitId, bool)>) -> Result<()> {
    if tx.is_caller_transaction() {
        return dependency_outbox::enqueue(tx, ended.iter().map(|(unit, _)| unit)).await;
    }
    let well: HashMap<UnitId, bool> = ended.into_iter().collect();
    let needs = uuids(well.keys());
    let (sql, limit) =
        ("SELECT unit FROM longshore_dependency WHERE depends_on = ANY($1) LIMIT $2", tx.dependants_left);
    let waiting = tx.query(sql, &[&needs, &limit]).await?;
    let waiting: Vec<Uuid> = waiting.iter().map(|row| value(row, 0)).collect::<Result<_>>()?;
    tx.dependants_left -= waiting.len() as i64;
    if tx.dependants_left == 0 {
        dependency_outbox::enqueue(tx, well.keys()).await?;
    }
    // Lock dependants before dependencies, as cancelling does.
    let sql = format!(
        "SELECT {}, u.open_dependencies FROM longshore_unit u WHERE u.state = 0 AND u.id = ANY($1)
         ORDER BY u.id FOR UPDATE",
        UnitRow::COLUMNS
    );
    let found = tx.query(&sql, &[&waiting]).await?;
    if found.is_empty() {
        return Ok(());
    }
    let units: Vec<Uuid> = found.iter().map(|row| value(row, 0)).collect::<Result<_>>()?;
    let edges = tx
        .query(
            "DELETE FROM longshore_dependency WHERE depends_on = ANY($1) AND unit = ANY($2)
             RETURNING unit, depends_on",
            &[&needs, &units],
        )
        .await?;
    let mut waiting: BTreeMap<UnitId, Vec<UnitId>> = BTreeMap::new();
    for edge in &edges {
        waiting.entry(unit_id(value(edge, 0)?)).or_default().push(unit_id(value(edge, 1)?));
    }
    let mut changes = Vec::new();
    let (mut still, mut left) = (Vec::new(), Vec::new());
    for found in found {
        let row = UnitRow::read(&Columns(&found))?;
        let waits_for: usize = small(&found, UnitRow::WIDTH)?;
        // Another transaction released it just before we had its lock.
        let Some(over) = waiting.remove(&row.id) else { continue };
        let failed = over.iter().find(|needs| well.get(needs) == Some(&false));
        let event = match failed.filter(|_| !row.has(flag::RELEASED_BY_FAILURE)) {
            Some(failed) => Event::DependencyFailed(*failed),
            None if waits_for <= over.len() => Event::Unblocked,
            None => {
                still.push(uuid(row.id));
                left.push(i32::try_from(waits_for - over.len()).map_err(damaged)?);
                continue;
            }
        };
        let step = transition(&row.transition_input()?, &event, &Policy::default(), tx.now)?;
        changes.push(UnitChange::step(row, step));
    }
    if !still.is_empty() {
        tx.query(
            "UPDATE longshore_unit u SET open_dependencies = f.open_dependencies
             FROM unnest($1, $2) AS f (id, open_dependencies) WHERE u.id = f.id",
            &[&still, &left],
        )
        .await?;
    }
    apply(tx, changes).await
}

/// The dependencies for which cancelled units would wait, without units that cannot run. Locks the
/// dependencies, so that their ends release the units.
pub(crate) async fn reopened_dependencies(
    tx: &mut Tx<'_>,
    cancelled: &[UnitRow],
) -> Result<HashMap<UnitId, Vec<UnitId>>> {
    let mut after = Vec::new();
    for row in cancelled {
        let needs = UnitAttributes::parse(row.spec.as_deref())?.after;
        if !needs.is_empty() {
            after.push((row, needs));
        }
    }
    let needs = lock_rows(tx, after.iter().flat_map(|(_, needs)| needs)).await?;
    let mut states: HashMap<UnitId, UnitState> = HashMap::new();
    for row in needs.values() {
        states.insert(row.id, row.state()?);
    }
    let mut reopened = HashMap::new();
    for (row, needs) in after {
        let state_of = |needs: UnitId| Ok::<_, Infallible>(states.get(&needs).copied());
        let Ok(open) = UnitDependencies::reopened(needs, state_of);
        if let Some(open) = open {
            reopened.insert(row.id, open);
            // Another unit may have its dedup key, so that it stays as it is: the next pass knows.
            if !row.has(flag::KEY_WHILE_LIVE) && !row.has(flag::KEY_SINCE) {
                states.insert(row.id, UnitState::Blocked);
            }
        }
    }
    Ok(reopened)
}
