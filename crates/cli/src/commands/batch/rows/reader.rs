//! Reads rows page by page from a store, a server or a pool.

use std::sync::Arc;

use longshore::{BatchId, Store};
use longshore_batch::row_listing::{self, ListedRow, RowFilter};
use longshore_dispatch::request::UnitSummary;

use crate::args::batch::BatchTarget;
use crate::commands::batch::context::connect_to_batch;
use crate::commands::dispatch::arrays::ArrayClient;
use crate::settings::Settings;

/// The most rows per request.
const PAGE: usize = 200;

/// Reads the rows that match a filter, newest first.
pub(super) struct RowReader<'a> {
    batch: &'a BatchId,
    settings: &'a Settings,
    source: RowStore<'a>,
    filter: RowFilter,
    /// Rows found so far.
    found: usize,
    cursor: Option<String>,
    is_over: bool,
}

enum RowStore<'a> {
    Store(Arc<dyn Store>),
    Pool(ArrayClient<'a>),
}

impl<'a> RowReader<'a> {
    /// Starts at the cursor `after`. An unknown batch is an error, not an empty list.
    pub(super) async fn open(
        target: &'a BatchTarget,
        filter: RowFilter,
        after: Option<String>,
        settings: &'a Settings,
    ) -> anyhow::Result<Self> {
        let batch = &target.batch.name;
        let source = match &target.pool.dir {
            Some(folder) => {
                let mut array = ArrayClient::of(folder, batch, settings).await?;
                array.apply(None).await?;
                RowStore::Pool(array)
            }
            None => {
                let (store, client) = connect_to_batch(batch, settings).await?;
                store.batch(client.scope(), batch).await?;
                RowStore::Store(store)
            }
        };
        Ok(Self { batch, settings, source, filter, found: 0, cursor: after, is_over: false })
    }

    /// The cursor after the rows read so far; `None` at the end.
    pub(super) fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref().filter(|_| !self.is_over)
    }

    /// The next matching rows, at most `max`; `None` if there are no more, or `max` is 0.
    pub(super) async fn read(&mut self, max: usize) -> anyhow::Result<Option<Vec<ListedRow>>> {
        let is_selective = self.filter != RowFilter::in_state(self.filter.state);
        let mut size = if is_selective { PAGE } else { max.min(PAGE) };
        while !self.is_over && max > 0 {
            let (rows, next) = self.page(size).await?;
            if rows.len() > max {
                // A smaller page, so that its cursor is after the last row that is returned.
                size = (size / 2).max(1);
                continue;
            }
            self.found += rows.len();
            let all_found = self.filter.max_rows().is_some_and(|most| self.found >= most);
            (self.is_over, self.cursor) = (next.is_none() || all_found, next);
            if !rows.is_empty() {
                return Ok(Some(rows));
            }
        }
        Ok(None)
    }

    /// The matching ones of the next `size` rows.
    async fn page(&mut self, size: usize) -> anyhow::Result<(Vec<ListedRow>, Option<String>)> {
        let Self { batch, settings, source, filter, cursor, .. } = self;
        let limit = u32::try_from(size)?;
        let matching = |rows: Vec<ListedRow>| rows.into_iter().filter(|row| filter.matches(row)).collect();
        match (source, &settings.server) {
            (RowStore::Pool(array), _) => {
                let (scripts, next) = array.scripts(filter.state, cursor.clone(), limit).await?;
                Ok((matching(scripts.into_iter().map(of_script).collect()), next))
            }
            // Few requests; through the store's trait it would be one for each row.
            (RowStore::Store(_), Some(server)) => {
                let found = server.rows(batch, filter.state, cursor.as_deref(), limit).await?;
                Ok((matching(found.items), found.next))
            }
            (RowStore::Store(store), None) => {
                let scope = settings.scope();
                let found =
                    row_listing::rows(&**store, &scope, batch, filter, cursor.as_deref(), limit).await?;
                Ok((found.items, found.next))
            }
        }
    }
}

/// An array's script as a row; its key is the index. Its output is shown by `unit show`.
fn of_script(script: UnitSummary) -> ListedRow {
    let (code, reason) = script.failure.map(|why| (why.code, why.message)).unzip();
    ListedRow {
        key: script.index.into(),
        state: script.state,
        attempt: script.attempt,
        code,
        reason,
        unit: script.unit,
        result: None,
        revision: None,
        step: None,
        answer: None,
    }
}
