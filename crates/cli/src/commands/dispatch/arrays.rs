//! `batch … --dir`: arrays of a pool, seen and steered through its server.

use std::path::Path;
use std::time::Duration;

use longshore::{Batch, BatchId, BatchStatus, UnitState};
use longshore_dispatch::client::Client;
use longshore_dispatch::request::{ArrayAction, Arrays, Listed, Reply, Request, Units};

use super::{connect_in, unexpected};
use crate::args::operate::PageArgs;
use crate::settings::Settings;

/// How often an array is looked at that is watched.
const LOOK: Duration = Duration::from_millis(200);

/// The arrays, and how the list goes on.
pub async fn list(
    folder: &Path,
    status: Option<BatchStatus>,
    page: &PageArgs,
    settings: &Settings,
) -> anyhow::Result<(Vec<Batch>, Option<String>)> {
    let arrays = Arrays { status, after: page.after.clone(), limit: page.limit };
    let request = Request::Arrays(settings.tenant.clone(), arrays);
    match connect_in(folder).await?.ask(&request).await? {
        Reply::Arrays(arrays, next) => Ok((arrays, next)),
        other => Err(unexpected(&other)),
    }
}

/// The array, after something was done to it.
pub async fn steer(
    folder: &Path,
    name: &BatchId,
    action: Option<ArrayAction>,
    settings: &Settings,
) -> anyhow::Result<Batch> {
    Watched::of(folder, name, settings).await?.steer(action).await
}

/// One array, and a connection to the server that has it.
pub struct Watched<'a> {
    client: Client,
    name: &'a BatchId,
    settings: &'a Settings,
}

impl<'a> Watched<'a> {
    /// The array of this name in the pool of this folder.
    pub async fn of(
        folder: &Path,
        name: &'a BatchId,
        settings: &'a Settings,
    ) -> anyhow::Result<Self> {
        Ok(Self { client: connect_in(folder).await?, name, settings })
    }

    /// The array, after something was done to it.
    pub async fn steer(&mut self, action: Option<ArrayAction>) -> anyhow::Result<Batch> {
        let request = Request::Steer(self.settings.tenant.clone(), self.name.clone(), action);
        match self.client.ask(&request).await? {
            Reply::Steered(array) => Ok(*array),
            other => Err(unexpected(&other)),
        }
    }

    /// The array, once `is_over`. `on_change` sees it first as it is, then after each change.
    pub async fn until(
        &mut self,
        is_over: impl Fn(&Batch) -> anyhow::Result<bool>,
        mut on_change: impl FnMut(&Batch) -> anyhow::Result<()>,
    ) -> anyhow::Result<Batch> {
        let mut seen = None;
        loop {
            let array = self.steer(None).await?;
            if seen.as_ref() != Some(&array) {
                on_change(&array)?;
            }
            if is_over(&array)? {
                return Ok(array);
            }
            seen = Some(array);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Some of its scripts, and how the list goes on.
    pub async fn scripts(
        &mut self,
        state: Option<UnitState>,
        after: Option<String>,
        limit: u32,
    ) -> anyhow::Result<(Vec<Listed>, Option<String>)> {
        let units = Units { state, batch: Some(self.name.clone()), after, limit };
        match self.client.ask(&Request::Units(self.settings.tenant.clone(), units)).await? {
            Reply::Units(units, next) => Ok((units, next)),
            other => Err(unexpected(&other)),
        }
    }
}
