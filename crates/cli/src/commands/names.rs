//! Finds what users name: a batch by its number or as `last`, and a task of a batch as `12.3`.

use std::path::{Path, PathBuf};

use longshore::{Batch, BatchId, Scope, Store, UnitId};
use longshore_dispatch::client::DispatchClient;
use longshore_dispatch::request::{ArrayQuery, ClientRequest, ServerReply};

use super::connect;
use super::dispatch::{connect_in, unexpected_reply};
use crate::args::unit_worker::{PoolTarget, UnitRef};
use crate::error::{WithHint, usage};
use crate::host_identity;
use crate::settings::Settings;

/// The name of the newest batch of this user.
const LAST: &str = "last";
/// Batches per page in a search for the newest.
const PAGE: u32 = 50;

/// Looks names up, in a pool or in the store. It connects when a name needs it.
pub struct NameLookup<'a> {
    folder: Option<PathBuf>,
    settings: &'a Settings,
    source: Option<NameSource>,
}

enum NameSource {
    Pool(Box<DispatchClient>),
    Store(std::sync::Arc<dyn Store>, Scope),
}

impl<'a> NameLookup<'a> {
    /// In the pool of this folder, or else in the store.
    pub fn new(folder: Option<&Path>, settings: &'a Settings) -> Self {
        Self { folder: folder.map(Path::to_path_buf), settings, source: None }
    }

    async fn source(&mut self) -> anyhow::Result<&mut NameSource> {
        let source = match (self.source.take(), &self.folder) {
            (Some(source), _) => source,
            (None, Some(folder)) => NameSource::Pool(Box::new(connect_in(folder).await?)),
            (None, None) => {
                let (store, client) = connect(self.settings).await?;
                NameSource::Store(store, client.scope().clone())
            }
        };
        Ok(self.source.insert(source))
    }

    /// The batch that is meant: a batch of this name, or else the one with this number, or the
    /// newest of this user. The server of a pool finds names, numbers and tasks itself.
    pub async fn batch(&mut self, name: &BatchId) -> anyhow::Result<BatchId> {
        let (batch, task) = name.as_str().split_once('.').unwrap_or((name.as_str(), ""));
        let is_last = batch == LAST && (task.is_empty() || self.folder.is_some());
        let is_number = self.folder.is_none() && name.as_str().chars().all(|c| c.is_ascii_digit());
        if !is_last && !is_number {
            return Ok(name.clone());
        }
        let newest = match self.read(&BatchId::new(batch)?).await {
            Err(_) if is_last => self.newest().await?,
            found => found?.id,
        };
        if task.is_empty() { Ok(newest) } else { Ok(BatchId::new(format!("{newest}.{task}"))?) }
    }

    async fn read(&mut self, name: &BatchId) -> anyhow::Result<Batch> {
        let tenant = self.settings.tenant.clone();
        match self.source().await? {
            NameSource::Store(store, scope) => Ok(store.batch(scope, name).await?),
            NameSource::Pool(client) => {
                match client.request(&ClientRequest::Steer(tenant, name.clone(), None)).await? {
                    ServerReply::Steered(array) => Ok(*array),
                    other => Err(unexpected_reply(&other)),
                }
            }
        }
    }

    /// The newest batch of this user, on whichever host it was submitted.
    async fn newest(&mut self) -> anyhow::Result<BatchId> {
        let tenant = self.settings.tenant.clone();
        let user = host_identity::user_name();
        let mut after = None;
        loop {
            let (batches, next) = match self.source().await? {
                NameSource::Store(store, scope) => {
                    let page = store.batches(scope, None, after.as_deref(), PAGE).await?;
                    (page.items, page.next)
                }
                NameSource::Pool(client) => {
                    let query = ArrayQuery { status: None, after, limit: PAGE };
                    match client.request(&ClientRequest::Arrays(tenant.clone(), query)).await? {
                        ServerReply::Arrays(arrays, next) => (arrays, next),
                        other => return Err(unexpected_reply(&other)),
                    }
                }
            };
            let is_own = |batch: &&Batch| batch.initiated_by.split('@').next() == Some(&user);
            if let Some(batch) = batches.iter().find(is_own) {
                return Ok(batch.id.clone());
            }
            after = next;
            if after.is_none() {
                return Err(usage(format!("there is no batch of user {user}")))
                    .hint("`longshore batch list` shows all batches");
            }
        }
    }

    /// The unit that is meant.
    pub async fn unit(&mut self, unit: &UnitRef) -> anyhow::Result<UnitId> {
        let name = match unit {
            UnitRef::Id(id) => return Ok(*id),
            UnitRef::Task(name) if self.folder.is_some() => self.batch(name).await?,
            UnitRef::Task(name) => {
                return Err(usage(format!("`{name}` is not the id of a unit")))
                    .hint("tasks as 12.3, and scripts by their number, are found in a pool: add --dir");
            }
        };
        let tenant = self.settings.tenant.clone();
        let NameSource::Pool(client) = self.source().await? else { return Err(usage("there is no pool")) };
        let found = client.request(&ClientRequest::FindTask(tenant, name)).await;
        match found.hint(
            "a unit is its id, or its place in a batch as 12.3; `longshore unit list` shows the units",
        )? {
            ServerReply::Found(unit) => Ok(unit),
            other => Err(unexpected_reply(&other)),
        }
    }

    /// The units that are meant.
    pub async fn units(&mut self, units: &[UnitRef]) -> anyhow::Result<Vec<UnitId>> {
        let mut ids = Vec::with_capacity(units.len());
        for unit in units {
            ids.push(self.unit(unit).await?);
        }
        Ok(ids)
    }
}

/// Takes the pool from `LONGSHORE_DISPATCH_DIR`, unless a pool, a store or a server is named.
pub fn use_environment(pool: &mut PoolTarget, settings: &Settings) {
    pool.dir = pool_folder(pool.dir.take(), settings);
}

/// The folder of the pool that is named, or that the environment names.
pub fn pool_folder(named: Option<PathBuf>, settings: &Settings) -> Option<PathBuf> {
    let store_named = settings.typed.store.is_some() || std::env::var_os(crate::env::STORE).is_some();
    if named.is_some() || store_named || settings.server.is_some() {
        return named;
    }
    let folder = std::env::var_os(crate::env::DISPATCH_DIR).filter(|folder| !folder.is_empty());
    folder.map(PathBuf::from)
}
