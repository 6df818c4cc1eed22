//! The limit on PostgreSQL: COPY of the same rows, and the store's own functions in plain loops. No engine, no
//! batches, no change feed, the same durability. Nothing built on these can be faster.

use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::Result;
use futures_util::future::try_join_all;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
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
    session: (i64, Uuid),
    fence: AtomicI64,
}

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
        let sql = "SELECT num, id FROM longshore_session ORDER BY num DESC LIMIT 1";
        let session = setup.query_one(sql, &[]).await?;
        let session = (session.get(0), session.get(1));
        Ok(Self { clients, _drivers: drivers, stream, session, fence: AtomicI64::new(1) })
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
        let parts = self.clients.iter().map(|client| self.process_part(client));
        Ok(try_join_all(parts).await?.into_iter().sum())
    }

    /// Writes `count` units in one state, beside the units that run.
    pub(crate) async fn company(&self, count: usize, state: i16) -> Result<()> {
        let waits = i32::from(state == 0);
        let count = i64::try_from(count)?;
        let code = if state == 2 { 9 } else { state };
        typed(
            &self.clients[0],
            "INSERT INTO longshore_unit (id, stream, state, sort_key, priority, created_at,
             open_dependencies, bytes, payload) SELECT gen_random_uuid(), $1, $2, 4000000000000000 + i, 5, i, $3, 8,
             '{\"i\":1} '::bytea FROM generate_series(1, $4) i",
            &[
                (&self.stream, Type::INT8),
                (&code, Type::INT2),
                (&waits, Type::INT4),
                (&count, Type::INT8),
            ],
        )
        .await?;
        if state == 2 {
            let ready = "INSERT INTO longshore_ready SELECT stream, sort_key, id, 0 FROM longshore_unit WHERE state = 9";
            self.clients[0].batch_execute(ready).await?;
        }
        let column = ["blocked", "scheduled", "ready", "leased", "done"][usize::try_from(state)?];
        let sql = format!("INSERT INTO longshore_stream_delta (stream, {column}, bytes) VALUES ($1, $2, $3)");
        let bytes = if state == 4 { 0 } else { count * 8 };
        let params: [(&(dyn ToSql + Sync), Type); 3] =
            [(&self.stream, Type::INT8), (&count, Type::INT8), (&bytes, Type::INT8)];
        typed(&self.clients[0], &sql, &params).await?;
        // One statement at a time: together they would be one transaction, in which VACUUM cannot run.
        for sql in ["VACUUM ANALYZE longshore_unit", "VACUUM ANALYZE longshore_ready", "CHECKPOINT"] {
            self.clients[0].batch_execute(sql).await?;
        }
        Ok(())
    }

    async fn process_part(&self, client: &Client) -> Result<usize> {
        let mut done = 0;
        loop {
            let (mut ids, fences) = self.claim(client).await?;
            if ids.is_empty() {
                return Ok(done);
            }
            done += ids.len();
            self.finish(client, &mut ids, &fences).await?;
        }
    }

    async fn claim(&self, client: &Client) -> Result<(Vec<(i64, Uuid)>, Vec<i64>)> {
        let fence = self.fence.fetch_add(CLAIM, Ordering::Relaxed);
        let sql = "SELECT c.* FROM (SELECT set_config('synchronous_commit', 'off', true)) s,
            longshore_claim_units(ARRAY[$1], ARRAY[$2], ARRAY[$2], ARRAY[0::bigint],
            ARRAY['00000000-0000-0000-0000-000000000000'::uuid], $3, $4, $3, ARRAY[]::bigint[], false) c";
        let params: [(&(dyn ToSql + Sync), Type); 4] = [
            (&self.stream, Type::INT8),
            (&CLAIM, Type::INT8),
            (&fence, Type::INT8),
            (&self.session.0, Type::INT8),
        ];
        let rows = typed(client, sql, &params).await?;
        let mut ids: Vec<(i64, Uuid)> = Vec::new();
        for row in &rows {
            std::hint::black_box(row.get::<_, Vec<&[u8]>>("payloads"));
            ids.extend(row.get::<_, Vec<Uuid>>("ids").into_iter().map(|id| (row.get("fence"), id)));
        }
        let fences = ids.iter().map(|(fence, _)| *fence).collect();
        Ok((ids, fences))
    }

    async fn finish(&self, client: &Client, leases: &mut [(i64, Uuid)], fences: &[i64]) -> Result<()> {
        leases.sort_unstable();
        let ids: Vec<Uuid> = leases.iter().map(|(_, id)| *id).collect();
        let mut fences = fences.to_vec();
        fences.sort_unstable();
        let mut ends: Vec<i32> = Vec::new();
        for group in fences.chunk_by(|a, b| a == b) {
            ends.push(ends.last().copied().unwrap_or(0) + i32::try_from(group.len())?);
        }
        let results: Vec<Option<&[u8]>> = vec![None; ids.len()];
        let sql = "SELECT * FROM longshore_finish_fast($1, $2, $3, $4, $5, $6, true)";
        let params: [(&(dyn ToSql + Sync), Type); 6] = [
            (&ids, Type::UUID_ARRAY),
            (&fences, Type::INT8_ARRAY),
            (&results, Type::BYTEA_ARRAY),
            (&ends, Type::INT4_ARRAY),
            (&2_i64, Type::INT8),
            (&self.session.1, Type::UUID),
        ];
        let rows = typed(client, sql, &params).await?;
        anyhow::ensure!(
            rows.iter().map(|row| row.get::<_, i64>(1)).sum::<i64>() == i64::try_from(ids.len())?
        );
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
        let ids: Vec<Uuid> =
            (first..last).map(|_| Uuid::from_bytes(*longshore::UnitId::new().as_bytes())).collect();
        client.batch_execute("BEGIN").await?;
        let sql = "COPY longshore_unit (id, stream, state, sort_key, priority, created_at, bytes, payload)
            FROM STDIN BINARY";
        let types =
            [Type::UUID, Type::INT8, Type::INT2, Type::INT8, Type::INT2, Type::INT8, Type::INT4, Type::BYTEA];
        let copy = BinaryCopyInWriter::new(client.copy_in(sql).await?, &types);
        tokio::pin!(copy);
        let mut all_bytes = 0;
        for (id, i) in ids.iter().zip(first..last) {
            let payload = format!("{{\"i\":{i}}}").into_bytes();
            let (rank, bytes) = (i64::try_from(i)?, i32::try_from(payload.len())?);
            all_bytes += i64::from(bytes);
            copy.as_mut().write(&[id, &stream, &9_i16, &rank, &5_i16, &rank, &bytes, &payload]).await?;
        }
        copy.finish().await?;
        let sql = "COPY longshore_ready (stream, sort_key, id, claim) FROM STDIN BINARY";
        let types = [Type::INT8, Type::INT8, Type::UUID, Type::INT2];
        let copy = BinaryCopyInWriter::new(client.copy_in(sql).await?, &types);
        tokio::pin!(copy);
        for (id, i) in ids.iter().zip(first..last) {
            copy.as_mut().write(&[&stream, &i64::try_from(i)?, id, &0_i16]).await?;
        }
        copy.finish().await?;
        let units = i64::try_from(ids.len())?;
        let sql = "INSERT INTO longshore_stream_delta (stream, ready, bytes) VALUES ($1, $2, $3)";
        let params: [(&(dyn ToSql + Sync), Type); 3] =
            [(&stream, Type::INT8), (&units, Type::INT8), (&all_bytes, Type::INT8)];
        typed(client, sql, &params).await?;
        client.batch_execute("COMMIT").await?;
    }
    Ok(())
}
