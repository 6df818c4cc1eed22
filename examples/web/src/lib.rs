//! An axum app that stays responsive during blocking work: SQL, password hashes, pictures, a Python library. Its
//! page shows the progress of each job, and how long the event loop takes to answer meanwhile.

mod orders;
mod page;
mod passwords;
mod pictures;
mod ports;

use std::path::Path;

use axum::Router;
use axum::response::Response;
use axum::routing::get;
use longshore_pool::axum::{Pools, WorkerPools, progress_sse};
use longshore_pool::{CallError, CallOptions, PoolSettings, WorkerPool};

/// Opens the pools and builds the app on them. The database is created in `folder`.
pub async fn open(folder: &Path) -> Result<(Router, Pools), CallError> {
    let pools = Pools::new()
        .add(threads("pictures", pictures::operations()).await?)
        .add(threads("passwords", passwords::operations()).await?)
        .add(ports::open().await?)
        .add(orders::open(&folder.join("orders.db")).await?);
    let app = Router::new()
        .route("/ping", get(async || "pong"))
        .route("/run/sql", get(orders::report))
        .route("/run/passwords", get(hash_passwords))
        .route("/run/picture", get(shrink_picture))
        .route("/run/python", get(find_ports))
        .nest("/pools", pools.router())
        .merge(page::routes())
        .with_state(pools.clone());
    Ok((app, pools))
}

async fn threads(name: &str, operations: longshore_pool::Operations) -> Result<WorkerPool, CallError> {
    let settings = PoolSettings { min: 1, max: 2, queue: 10, ..PoolSettings::default() };
    WorkerPool::threads(name, operations, settings).await
}

async fn hash_passwords(workers: WorkerPools) -> Result<Response, CallError> {
    progress_sse(workers.pool("passwords")?, "hash", &24, watched()).await
}

async fn shrink_picture(workers: WorkerPools) -> Result<Response, CallError> {
    let widths = [1200, 900, 640, 480, 320];
    progress_sse(workers.pool("pictures")?, "shrink", &widths, watched()).await
}

async fn find_ports(workers: WorkerPools) -> Result<Response, CallError> {
    let misspelt = [
        "Roterdam",
        "Hambrug",
        "Antwerpp",
        "Felixtow",
        "Singapure",
        "Shangai",
        "Marsaille",
        "Yokohamma",
        "Bremerhafen",
        "Gotenburg",
        "Tangiers",
        "Valenzia",
    ];
    progress_sse(workers.pool("python")?, "find", &misspelt, watched()).await
}

/// Cancels the call when the user leaves the page or presses Stop.
fn watched() -> CallOptions {
    CallOptions::default().cancel_on_drop()
}
