//! Recounts everything, compares it with the counters, and checks the store's invariants.
//!
//! Every rule is one statement, which reads one snapshot: it is exact while other transactions run.

use longshore_core::Result;
use longshore_core::store::Violation;

use crate::row::value;
use crate::tx::Tx;

/// All violations, at most a hundred per rule.
pub(crate) async fn verify(tx: &mut Tx<'_>) -> Result<Vec<Violation>> {
    let mut found = Vec::new();
    // No time limit: this reads every unit.
    tx.batch("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0").await?;
    for (rule, sql) in RULES {
        let sql = format!("SELECT found FROM ({sql}) AS rule (found) LIMIT 100");
        for row in tx.query(&sql, &[]).await? {
            found.push(Violation { rule: (*rule).to_owned(), found: value(&row, 0)? });
        }
    }
    Ok(found)
}

const RULES: &[(&str, &str)] = &[
    (
        "tally_is_exact",
        // One scan of all units for all states.
        "SELECT 'stream ' || c.stream || ' counts ' || n.kept || ' ' || n.state || ', has ' ||
         n.found
         FROM longshore_stream_count c LEFT JOIN (
           SELECT stream, count(*) FILTER (WHERE state = 0) AS blocked,
             count(*) FILTER (WHERE state = 1) AS scheduled,
             count(*) FILTER (WHERE state IN (2, 7, 8)) AS ready,
             count(*) FILTER (WHERE state = 3) AS leased,
             count(*) FILTER (WHERE state = 4) AS done,
             count(*) FILTER (WHERE state = 5) AS failed,
             count(*) FILTER (WHERE state = 6) AS cancelled,
             sum(bytes) FILTER (WHERE state NOT IN (4, 5, 6)) AS bytes,
             sum(bytes + 256) AS stored_bytes -- 256 is `ROW_BYTES`
           FROM longshore_unit GROUP BY stream) u ON u.stream = c.stream
         LEFT JOIN (
           SELECT r.stream, count(*) AS units FROM longshore_ready r WHERE r.claim = 0
           GROUP BY r.stream) r ON r.stream = c.stream
         LEFT JOIN (
           SELECT g.stream, sum(cardinality(g.units)) AS units FROM longshore_lease_group g
           GROUP BY g.stream) l ON l.stream = c.stream
         LEFT JOIN (
           SELECT g.stream, count(*) AS units, sum(u.bytes) AS bytes FROM longshore_done_group g
           CROSS JOIN LATERAL unnest(g.units) AS i (id) JOIN longshore_unit u ON u.id = i.id
           GROUP BY g.stream) d ON d.stream = c.stream
         CROSS JOIN LATERAL (VALUES
           ('blocked', c.blocked, coalesce(u.blocked, 0)),
           ('scheduled', c.scheduled, coalesce(u.scheduled, 0)),
           ('ready', c.ready, coalesce(u.ready, 0) + coalesce(r.units, 0)),
           ('leased', c.leased, coalesce(u.leased, 0) + coalesce(l.units, 0)),
           ('done', c.done, coalesce(u.done, 0) + coalesce(d.units, 0) + c.pruned_done),
           ('failed', c.failed, coalesce(u.failed, 0) + c.pruned_failed),
           ('cancelled', c.cancelled, coalesce(u.cancelled, 0) + c.pruned_cancelled),
           ('live bytes', c.bytes, coalesce(u.bytes, 0) - coalesce(d.bytes, 0)),
           ('stored bytes', c.stored_bytes, coalesce(u.stored_bytes, 0))) AS n (state, kept, found)
         WHERE n.kept <> n.found",
    ),
    (
        "one_holder",
        "SELECT 'unit ' || u.id || ' is leased by a session that has ended' FROM longshore_unit u
         WHERE u.session IS NOT NULL
         AND NOT EXISTS (SELECT 1 FROM longshore_session h WHERE h.num = u.session)",
    ),
    (
        "one_holder",
        "SELECT cardinality(g.units) || ' units are leased together by a session that has ended'
         FROM longshore_lease_group g
         WHERE NOT EXISTS (SELECT 1 FROM longshore_session h WHERE h.num = g.session)",
    ),
    (
        "one_holder",
        "SELECT 'unit ' || coalesce(u.id, p.id) || ' has the state ' || coalesce(u.state::text, 'none')
           || ' and is in ' || coalesce(p.places, 'no place')
         FROM (SELECT id, state, stream FROM longshore_unit WHERE state IN (2, 9)) u FULL JOIN (
           SELECT id, string_agg(place, ', ') AS places, count(*) AS found, min(stream) AS stream FROM (
             SELECT stream, id, CASE claim WHEN 0 THEN 'bulk ready' ELSE 'ready' END AS place
             FROM longshore_ready
             UNION ALL SELECT stream, unnest(units), 'a lease group' FROM longshore_lease_group
             UNION ALL SELECT stream, unnest(units), 'a done group' FROM longshore_done_group) p
           GROUP BY id) p ON p.id = u.id
         WHERE u.id IS NULL OR p.id IS NULL OR p.found <> 1 OR p.stream <> u.stream
         OR (u.state = 2) <> (p.places = 'ready')",
    ),
    (
        "one_holder",
        "SELECT 'unit ' || u.id || ' is outside the bounds of its done group' FROM longshore_done_group g
         CROSS JOIN LATERAL unnest(g.units) AS i (id) JOIN longshore_unit u ON u.id = i.id
         WHERE (u.sort_key, u.id) < (g.first_rank, g.first_id) OR u.sort_key > g.last_rank",
    ),
    (
        "no_unit_lost",
        "SELECT 'unit ' || u.id || ' belongs to no stream' FROM longshore_unit u
         WHERE NOT EXISTS (SELECT 1 FROM longshore_stream s WHERE s.num = u.stream)",
    ),
    (
        "no_unit_lost",
        "SELECT 'stream ' || s.num || ' belongs to no batch' FROM longshore_stream s
         WHERE s.batch <> 0 AND NOT EXISTS (SELECT 1 FROM longshore_batch b WHERE b.num = s.batch)",
    ),
    (
        "no_unit_lost",
        "SELECT 'unit ' || u.id || ' waits for ' || u.open_dependencies || ' units, ' ||
         d.recorded ||
         ' are recorded' FROM longshore_unit u CROSS JOIN LATERAL (SELECT count(*) AS recorded
         FROM longshore_dependency d WHERE d.unit = u.id) d
         WHERE u.state = 0 AND u.open_dependencies <> d.recorded",
    ),
    (
        "no_unit_lost",
        "SELECT 'unit ' || d.unit || ' waits for ' || d.depends_on || ', which has ended or is gone'
         FROM longshore_dependency d WHERE NOT EXISTS (SELECT 1 FROM longshore_unit u
         WHERE u.id = d.depends_on AND u.state NOT IN (4, 5, 6, 9) AND u.flags & 2 <> 0)
         AND NOT EXISTS (SELECT 1 FROM longshore_dependency_outbox n WHERE n.unit = d.depends_on)",
    ),
    (
        "no_unit_lost",
        "SELECT 'unit ' || d.unit || ' is not blocked but waits for ' || d.depends_on
         FROM longshore_dependency d WHERE NOT EXISTS (SELECT 1 FROM longshore_unit u
         WHERE u.id = d.unit AND u.state = 0)",
    ),
    (
        "tally_is_exact",
        "SELECT 'batch ' || b.name || ' is complete with live units' FROM longshore_batch b
         WHERE b.status = 'complete' AND EXISTS (SELECT 1 FROM longshore_stream_count c
         WHERE c.batch = b.num AND c.batch <> 0
         AND c.blocked + c.scheduled + c.ready + c.leased > 0)",
    ),
    (
        "tally_is_exact",
        "SELECT 'batch ' || b.name || ' has ended but is ' || b.status FROM longshore_batch b
         WHERE b.sealed AND b.status IN ('queued', 'running', 'paused')
         AND NOT EXISTS (SELECT 1 FROM longshore_stream_count c WHERE c.batch = b.num AND c.batch
         <> 0
         AND c.blocked + c.scheduled + c.ready + c.leased > 0)",
    ),
    (
        "tally_is_exact",
        "SELECT 'sums are kept of batch ' || a.batch || ', which is gone' FROM longshore_batch_sum a
         WHERE NOT EXISTS (SELECT 1 FROM longshore_batch b WHERE b.num = a.batch)",
    ),
    (
        "books_are_exact",
        "SELECT 'the month ' || month || ' of ' || tenant || ' has ' || kept || ', its calls '
           || found
         FROM (SELECT tenant, month, concat_ws(' ', spent_tokens, spent_picos, reserved_tokens,
             reserved_picos) AS kept, coalesce(c.found, '0 0 0 0') AS found
           FROM longshore_monthly_spend_total LEFT JOIN (
             SELECT tenant, month, concat_ws(' ',
               coalesce(sum(tokens_in::numeric + tokens_out), 0), coalesce(sum(cost_picos), 0),
               coalesce(sum(reserve_tokens) FILTER (WHERE status = 0), 0),
               coalesce(sum(reserve_picos) FILTER (WHERE status = 0), 0)) AS found
             FROM longshore_call GROUP BY tenant, month) c USING (tenant, month)) m
         WHERE m.kept <> m.found",
    ),
    (
        "books_are_exact",
        "SELECT 'call ' || c.id || ' is in no month' FROM longshore_call c WHERE NOT EXISTS (
           SELECT 1 FROM longshore_monthly_spend m WHERE m.tenant = c.tenant AND m.month = c.month)
         AND NOT EXISTS (
           SELECT 1 FROM longshore_monthly_spend_delta m WHERE m.tenant = c.tenant AND m.month =
           c.month)",
    ),
    (
        "books_are_exact",
        "SELECT 'call ' || c.id || ' is open, and its session has ended' FROM longshore_call c
         WHERE c.status = 0 AND c.session IS NOT NULL
         AND NOT EXISTS (SELECT 1 FROM longshore_session s WHERE s.id = c.session)",
    ),
    (
        "bounded",
        "SELECT 'room is reserved in lane ' || r.lane || ', which is none'
         FROM longshore_capacity_reservation r
         WHERE NOT EXISTS (SELECT 1 FROM longshore_lane l WHERE l.num = r.lane)",
    ),
];
