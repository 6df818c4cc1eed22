//! The limit on PostgreSQL: the store's own bulk statements in plain loops. No engine, no batches,
//! no change feed, the same durability. Nothing built on these statements can be faster.

use anyhow::Result;
use futures_util::future::try_join_all;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

/// Rows per transaction, as in the engine's bulk send.
const SEND: usize = 1000;
/// Rows per claim and per finish.
const CLAIM: i64 = 500;

/// Connections to a database with the store's tables, and a session on it.
pub(crate) struct Limit {
    clients: Vec<Client>,
    _drivers: tokio::task::JoinSet<()>,
    stream: i64,
    session: i64,
}

const BEGIN: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '15s'; \
                     SET LOCAL lock_timeout = '10s'; SET LOCAL jit = off; \
                     SET LOCAL random_page_cost = 0.01; SET LOCAL enable_bitmapscan = off; \
                     SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";

impl Limit {
    /// Opens `connections` connections.
    pub(crate) async fn connect(url: &str, connections: usize) -> Result<Self> {
        let mut clients = Vec::new();
        let mut drivers = tokio::task::JoinSet::new();
        for _ in 0..connections {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            drivers.spawn(async move {
                let _ = connection.await;
            });
            clients.push(client);
        }
        let setup = &clients[0];
        setup
            .batch_execute(
                "INSERT INTO longshore_queue (name) VALUES ('default') ON CONFLICT DO NOTHING;
                 INSERT INTO longshore_lane (queue, tenant) SELECT num, 'default'
                   FROM longshore_queue WHERE name = 'default' ON CONFLICT DO NOTHING;
                 INSERT INTO longshore_stream (lane, kind) SELECT l.num, 'noop'
                   FROM longshore_lane l
                   JOIN longshore_queue q ON q.num = l.queue WHERE q.name = 'default'
                   AND l.tenant = 'default' ON CONFLICT DO NOTHING;
                 INSERT INTO longshore_session (id, label, version, kinds, slots, ttl, opened_at,
                   heartbeat_at) VALUES (gen_random_uuid(), '', '', '{}', 1, 1, 0, 0)",
            )
            .await?;
        let stream = setup
            .query_one("SELECT num FROM longshore_stream WHERE kind = 'noop' AND batch = 0", &[])
            .await?
            .get(0);
        let session = setup.query_one("SELECT max(num) FROM longshore_session", &[]).await?.get(0);
        Ok(Self { clients, _drivers: drivers, stream, session })
    }

    /// Inserts `count` units, split over all connections.
    pub(crate) async fn send(&self, count: usize) -> Result<()> {
        let share = count.div_ceil(self.clients.len());
        let parts = self.clients.iter().enumerate().map(|(at, client)| {
            let (start, end) = (at * share, ((at + 1) * share).min(count));
            send_part(client, self.stream, start, end)
        });
        try_join_all(parts).await?;
        Ok(())
    }

    /// Claims and finishes all ready units; returns their number.
    pub(crate) async fn process(&self) -> Result<usize> {
        let parts = self.clients.iter().map(|client| process_part(client, self.stream, self.session));
        Ok(try_join_all(parts).await?.into_iter().sum())
    }

    /// Writes `count` units in one state, beside the units that run.
    pub(crate) async fn company(&self, count: usize, state: i16) -> Result<()> {
        let waits = i32::from(state == 0);
        let count = i64::try_from(count)?;
        typed(
            &self.clients[0],
            "INSERT INTO longshore_unit (id, stream, state, sort_key, priority, created_at,
             open_dependencies, bytes, payload) SELECT gen_random_uuid(), $1, $2, 4000000000000000 + i, 5, i, $3, 8,
             '{\"i\":1} '::bytea FROM generate_series(1, $4) i",
            &[
                (&self.stream, Type::INT8),
                (&state, Type::INT2),
                (&waits, Type::INT4),
                (&count, Type::INT8),
            ],
        )
        .await?;
        let column = ["blocked", "scheduled", "ready", "leased", "done"][usize::try_from(state)?];
        let sql = format!("INSERT INTO longshore_stream_delta (stream, {column}, bytes) VALUES ($1, $2, $3)");
        let bytes = if state == 4 { 0 } else { count * 8 };
        let params: [(&(dyn ToSql + Sync), Type); 3] =
            [(&self.stream, Type::INT8), (&count, Type::INT8), (&bytes, Type::INT8)];
        typed(&self.clients[0], &sql, &params).await?;
        // One statement at a time: together they would be one transaction, in which VACUUM cannot run.
        for sql in ["VACUUM ANALYZE longshore_unit", "CHECKPOINT"] {
            self.clients[0].batch_execute(sql).await?;
        }
        Ok(())
    }
}

async fn typed(
    client: &Client,
    sql: &str,
    params: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Vec<tokio_postgres::Row>> {
    Ok(client.query_typed(sql, params).await?)
}

async fn send_part(client: &Client, stream: i64, start: usize, end: usize) -> Result<()> {
    for first in (start..end).step_by(SEND) {
        let last = (first + SEND).min(end);
        let mut ids = Vec::new();
        let mut payloads = Vec::new();
        let mut sizes = Vec::new();
        for i in first..last {
            let payload = format!("{{\"i\":{i}}}").into_bytes();
            ids.push(Uuid::from_bytes(*longshore::UnitId::new().as_bytes()));
            sizes.push(i32::try_from(payload.len())?);
            payloads.push(payload);
        }
        let now = i64::try_from(first)?;
        client.batch_execute(BEGIN).await?;
        typed(
            client,
            "INSERT INTO longshore_unit (id, stream, state, sort_key, priority, created_at, bytes,
             payload) SELECT f.id, $2, 2, $3, 5, $3, f.bytes, f.payload
             FROM unnest($1, $4, $5) AS f (id, bytes, payload) ON CONFLICT (id) DO NOTHING
             RETURNING id",
            &[
                (&ids, Type::UUID_ARRAY),
                (&stream, Type::INT8),
                (&now, Type::INT8),
                (&sizes, Type::INT4_ARRAY),
                (&payloads, Type::BYTEA_ARRAY),
            ],
        )
        .await?;
        let (units, bytes) = (i64::try_from(ids.len())?, i64::from(sizes.iter().sum::<i32>()));
        let params: [(&(dyn ToSql + Sync), Type); 3] =
            [(&stream, Type::INT8), (&units, Type::INT8), (&bytes, Type::INT8)];
        typed(
            client,
            "INSERT INTO longshore_stream_delta (stream, ready, bytes) VALUES ($1, $2, $3)",
            &params,
        )
        .await?;
        client.batch_execute("COMMIT").await?;
    }
    Ok(())
}

async fn process_part(client: &Client, stream: i64, session: i64) -> Result<usize> {
    let mut done = 0;
    loop {
        let (ids, fences, bytes) = claim(client, stream, session).await?;
        if ids.is_empty() {
            return Ok(done);
        }
        finish(client, stream, session, &ids, &fences, bytes).await?;
        done += ids.len();
    }
}

async fn claim(client: &Client, stream: i64, session: i64) -> Result<(Vec<Uuid>, Vec<i64>, i64)> {
    client.batch_execute(&format!("{BEGIN}; SET LOCAL synchronous_commit = off")).await?;
    let rows = typed(
        client,
        "WITH c AS (SELECT id FROM longshore_unit WHERE stream = $1 AND state = 2
           ORDER BY sort_key, id LIMIT $2 FOR UPDATE SKIP LOCKED)
         UPDATE longshore_unit u SET state = 3, sort_key = 1, session = $3, fence = fence + 1,
         attempt = attempt + 1, started_at = 1 FROM c WHERE u.id = c.id
         RETURNING u.id, u.fence, u.bytes, u.payload, u.flags, u.spec, u.created_at, u.priority",
        &[(&stream, Type::INT8), (&CLAIM, Type::INT8), (&session, Type::INT8)],
    )
    .await?;
    let mut bytes = 0;
    for row in &rows {
        std::hint::black_box(row.get::<_, &[u8]>(3));
        bytes += i64::from(row.get::<_, i32>(2));
    }
    let count = i64::try_from(rows.len())?;
    let params: [(&(dyn ToSql + Sync), Type); 2] = [(&stream, Type::INT8), (&count, Type::INT8)];
    typed(client, "INSERT INTO longshore_stream_delta (stream, ready, leased) VALUES ($1, -$2, $2)", &params)
        .await?;
    client.batch_execute("COMMIT").await?;
    let ids = rows.iter().map(|row| row.get(0)).collect();
    Ok((ids, rows.iter().map(|row| row.get(1)).collect(), bytes))
}

async fn finish(
    client: &Client,
    stream: i64,
    session: i64,
    ids: &Vec<Uuid>,
    fences: &Vec<i64>,
    bytes: i64,
) -> Result<()> {
    let results: Vec<Option<&[u8]>> = vec![None; ids.len()];
    client.batch_execute(BEGIN).await?;
    typed(
        client,
        "UPDATE longshore_unit u SET state = 4, sort_key = $4, session = NULL, started_at = NULL,
         lost = 0, progress = NULL, failure = NULL, result = f.result
         FROM unnest($1, $2, $3) AS f (id, fence, result)
         WHERE u.id = f.id AND u.fence = f.fence AND coalesce(u.session, 0) = $5 AND u.flags = 0
         AND u.cap_key IS NULL RETURNING u.id, u.fence, u.stream, u.bytes",
        &[
            (ids, Type::UUID_ARRAY),
            (fences, Type::INT8_ARRAY),
            (&results, Type::BYTEA_ARRAY),
            (&2_i64, Type::INT8),
            (&session, Type::INT8),
        ],
    )
    .await?;
    let count = i64::try_from(ids.len())?;
    let params: [(&(dyn ToSql + Sync), Type); 3] =
        [(&stream, Type::INT8), (&count, Type::INT8), (&bytes, Type::INT8)];
    typed(
        client,
        "INSERT INTO longshore_stream_delta (stream, leased, done, bytes)
         VALUES ($1, -$2, $2, -$3)",
        &params,
    )
    .await?;
    client.batch_execute("COMMIT").await?;
    Ok(())
}
