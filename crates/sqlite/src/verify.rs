//! Recounts all units, compares with the stored counters, and checks the invariants.

use longshore_core::store::Violation;
use longshore_core::{Result, UnitState};
use rusqlite::Connection;

use crate::error::Translate;

/// All violations, at most a hundred per rule.
pub(crate) fn verify(db: &Connection) -> Result<Vec<Violation>> {
    let mut found = Vec::new();
    for state in UnitState::ALL {
        check(db, &mut found, "tally_is_exact", &recount(state))?;
    }
    for (rule, sql) in RULES {
        check(db, &mut found, rule, sql)?;
    }
    Ok(found)
}

fn recount(state: UnitState) -> String {
    let column = state.as_str();
    let codes = match state {
        UnitState::Ready => "2, 7, 8".to_owned(),
        other => crate::row::state_code(other).to_string(),
    };
    let gone = if state.is_final() { format!("s.pruned_{column}") } else { "0".to_owned() };
    format!(
        "SELECT 'stream ' || s.num || ' counts ' || s.{column} || ' {column}, has ' ||
         (count(u.id) + {gone}) FROM longshore_stream s LEFT JOIN longshore_unit u
         ON u.stream = s.num AND u.state IN ({codes})
         GROUP BY s.num HAVING s.{column} <> count(u.id) + {gone} LIMIT 100"
    )
}

const RULES: [(&str, &str); 10] = [
    (
        "one_holder",
        "SELECT 'unit ' || hex(id) || ' is leased by a session that has ended'
         FROM longshore_unit WHERE session IS NOT NULL
         AND session NOT IN (SELECT num FROM longshore_session) LIMIT 100",
    ),
    (
        "no_unit_lost",
        "SELECT 'unit ' || hex(id) || ' belongs to no stream' FROM longshore_unit
         WHERE stream NOT IN (SELECT num FROM longshore_stream) LIMIT 100",
    ),
    (
        "no_unit_lost",
        "SELECT 'stream ' || num || ' belongs to no batch' FROM longshore_stream
         WHERE batch <> 0 AND batch NOT IN (SELECT num FROM longshore_batch) LIMIT 100",
    ),
    (
        "no_unit_lost",
        "SELECT 'unit ' || hex(id) || ' waits for units that are not recorded'
         FROM longshore_unit u WHERE state = 0 AND open_dependencies <>
         (SELECT count(*) FROM longshore_dependency d WHERE d.unit = u.id) LIMIT 100",
    ),
    (
        "bounded",
        "SELECT 'stream ' || s.num || ' counts ' || s.bytes || ' live bytes, has ' ||
         coalesce(sum(u.bytes), 0) FROM longshore_stream s LEFT JOIN longshore_unit u
         ON u.stream = s.num AND u.state IN (0, 1, 2, 3, 7, 8)
         GROUP BY s.num HAVING s.bytes <> coalesce(sum(u.bytes), 0) LIMIT 100",
    ),
    (
        "bounded",
        // 256 is `ROW_BYTES`.
        "SELECT 'stream ' || s.num || ' counts ' || s.stored_bytes || ' stored bytes, has ' ||
         coalesce(sum(u.bytes + 256), 0) FROM longshore_stream s LEFT JOIN longshore_unit u
         ON u.stream = s.num GROUP BY s.num
         HAVING s.stored_bytes <> coalesce(sum(u.bytes + 256), 0) LIMIT 100",
    ),
    (
        "tally_is_exact",
        "SELECT 'batch ' || b.name || ' is complete with live units' FROM longshore_batch b
         JOIN longshore_stream s ON s.batch = b.num WHERE b.status = 'complete'
         AND s.blocked + s.scheduled + s.ready + s.leased > 0 LIMIT 100",
    ),
    (
        "tally_is_exact",
        "SELECT 'batch ' || b.name || ' has ended but is ' || b.status FROM longshore_batch b
         WHERE b.sealed AND b.status IN ('queued', 'running', 'paused') AND NOT EXISTS
         (SELECT 1 FROM longshore_stream s WHERE s.batch = b.num
          AND s.blocked + s.scheduled + s.ready + s.leased > 0) LIMIT 100",
    ),
    (
        // The months minus the calls must be zero.
        "books_are_exact",
        "SELECT 'tenant ' || tenant || ' in ' || month || ': the month counts ' ||
         sum(spent_tokens) || ' tokens and ' || sum(spent_picos) || ' picos more as spent, ' ||
         sum(reserved_tokens) || ' and ' || sum(reserved_picos) || ' more as reserved'
         FROM (SELECT tenant, month, spent_tokens, spent_picos, reserved_tokens, reserved_picos
           FROM longshore_monthly_spend UNION ALL
           SELECT tenant, strftime('%Y-%m', opened_at / 1000000, 'unixepoch'),
           -coalesce(tokens_in + tokens_out, 0), -coalesce(cost_picos, 0),
           iif(status = 0, -reserve_tokens, 0), iif(status = 0, -reserve_picos, 0)
           FROM longshore_call)
         GROUP BY tenant, month HAVING sum(spent_tokens) <> 0 OR sum(spent_picos) <> 0
         OR sum(reserved_tokens) <> 0 OR sum(reserved_picos) <> 0 LIMIT 100",
    ),
    (
        "books_are_exact",
        "SELECT 'call ' || hex(id) || ' is open, and its session has ended' FROM longshore_call
         WHERE status = 0 AND session IS NOT NULL
         AND session NOT IN (SELECT id FROM longshore_session) LIMIT 100",
    ),
];

fn check(db: &Connection, found: &mut Vec<Violation>, rule: &str, sql: &str) -> Result<()> {
    let mut statement = db.prepare(sql).or_translate()?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).or_translate()?;
    for row in rows {
        found.push(Violation { rule: rule.to_owned(), found: row.or_translate()? });
    }
    Ok(())
}
