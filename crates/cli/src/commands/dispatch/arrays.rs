//! `batch … --dir`: shows and controls arrays of a pool through its server.

use std::path::Path;
use std::time::Duration;

use longshore::{Batch, BatchId, BatchStatus, UnitState};
use longshore_dispatch::client::DispatchClient;
use longshore_dispatch::request::{
    ArrayAction, ArrayQuery, ClientRequest, ServerReply, UnitQuery, UnitSummary,
};

use super::{connect_in, unexpected_reply};
use crate::args::unit_worker::PageArgs;
use crate::error::hinted;
use crate::settings::Settings;

/// Interval between two reads of a watched array.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The arrays of a page, and the next cursor.
pub async fn list(
    folder: &Path,
    status: Option<BatchStatus>,
    page: &PageArgs,
    settings: &Settings,
) -> anyhow::Result<(Vec<Batch>, Option<String>)> {
    let arrays = ArrayQuery { status, after: page.after.clone(), limit: page.limit };
    let request = ClientRequest::Arrays(settings.tenant.clone(), arrays);
    match connect_in(folder).await?.request(&request).await? {
        ServerReply::Arrays(arrays, next) => Ok((arrays, next)),
        other => Err(unexpected_reply(&other)),
    }
}

/// Applies an action to an array, and returns the array.
pub async fn apply(
    folder: &Path,
    name: &BatchId,
    action: Option<ArrayAction>,
    settings: &Settings,
) -> anyhow::Result<Batch> {
    ArrayClient::of(folder, name, settings).await?.apply(action).await
}

/// One array, and a connection to its pool's server.
pub struct ArrayClient<'a> {
    client: DispatchClient,
    name: &'a BatchId,
    settings: &'a Settings,
}

impl<'a> ArrayClient<'a> {
    /// The array of this name in the pool of this folder.
    pub async fn of(folder: &Path, name: &'a BatchId, settings: &'a Settings) -> anyhow::Result<Self> {
        Ok(Self { client: connect_in(folder).await?, name, settings })
    }

    /// Applies an action, and returns the array.
    pub async fn apply(&mut self, action: Option<ArrayAction>) -> anyhow::Result<Batch> {
        let request = ClientRequest::Steer(self.settings.tenant.clone(), self.name.clone(), action);
        let reply = self.client.request(&request).await.map_err(|error| match error.to_string() {
            text if text.starts_with("there is no batch") => {
                hinted(error.into(), "`longshore batch list` shows the batches of the pool")
            }
            _ => error.into(),
        });
        match reply? {
            ServerReply::Steered(array) => Ok(*array),
            other => Err(unexpected_reply(&other)),
        }
    }

    /// Waits until `is_over`, and returns the array. `on_change` gets the array first as it is,
    /// then after each change.
    pub async fn wait_until(
        &mut self,
        is_over: impl Fn(&Batch) -> anyhow::Result<bool>,
        mut on_change: impl FnMut(&Batch) -> anyhow::Result<()>,
    ) -> anyhow::Result<Batch> {
        let mut seen = None;
        loop {
            let array = self.apply(None).await?;
            if seen.as_ref() != Some(&array) {
                on_change(&array)?;
            }
            if is_over(&array)? {
                return Ok(array);
            }
            seen = Some(array);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// A page of its scripts, and the next cursor.
    pub async fn scripts(
        &mut self,
        state: Option<UnitState>,
        after: Option<String>,
        limit: u32,
    ) -> anyhow::Result<(Vec<UnitSummary>, Option<String>)> {
        let units = UnitQuery { state, batch: Some(self.name.clone()), after, limit };
        match self.client.request(&ClientRequest::Units(self.settings.tenant.clone(), units)).await? {
            ServerReply::Units(units, next) => Ok((units, next)),
            other => Err(unexpected_reply(&other)),
        }
    }
}
