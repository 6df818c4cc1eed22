//! `batch … --dir`: arrays of a pool, seen and steered through its server.

use std::path::Path;

use longshore::{Batch, BatchId, BatchStatus};
use longshore_dispatch::request::{ArrayAction, Arrays, Reply, Request};

use super::{connect_in, unexpected};
use crate::args::operate::PageArgs;
use crate::settings::Settings;

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
    let request = Request::Steer(settings.tenant.clone(), name.clone(), action);
    match connect_in(folder).await?.ask(&request).await? {
        Reply::Steered(array) => Ok(*array),
        other => Err(unexpected(&other)),
    }
}
