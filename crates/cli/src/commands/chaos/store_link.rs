//! The workers' connection to the store, which `chaos --faults` lets fail: PostgreSQL behind a proxy, SQLite by a lock.

use std::path::PathBuf;
use std::time::Duration;

use longshore_fault_proxy::{Direction, FaultProxy, LinkFault};
use longshore_sqlite::rusqlite::Connection;

use crate::error::{WithHint, usage};
use crate::settings::Settings;
use crate::store::StoreUrl;

/// How long the store does not answer: longer than a session of the run's workers lives.
const OUTAGE: Duration = Duration::from_secs(5);

/// The workers' connection to the store.
pub enum StoreLink {
    /// Nothing can be injected.
    Direct,
    /// The file that a lock stalls.
    File(PathBuf),
    /// Workers connect to this proxy.
    Proxy(FaultProxy),
}

/// A fault of the store, as all workers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreFault {
    /// The store does not answer.
    Stall,
    /// Connections are reset, and new ones are refused.
    Cut,
    /// The server forgets its connections, and the workers are not told.
    HalfOpen,
}

impl StoreFault {
    /// Its name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stall => "store stalls for 5 s",
            Self::Cut => "store's connections are cut for 5 s",
            Self::HalfOpen => "store's connections are half-open",
        }
    }
}

impl StoreLink {
    /// Returns the link and the settings by which workers use it.
    pub fn open(settings: &Settings) -> anyhow::Result<(Self, Settings)> {
        match &settings.store {
            StoreUrl::Sqlite(path) => Ok((Self::File(path.clone()), settings.clone())),
            StoreUrl::Postgres(url) => {
                let Some(server) = url.server() else {
                    return Err(usage("--faults: the store's URL does not name one server over TCP"))
                        .hint("name one host and port, without hostaddr");
                };
                let proxy = FaultProxy::start(server)?;
                let store = StoreUrl::Postgres(url.through_port(proxy.address().port()));
                Ok((Self::Proxy(proxy), Settings { store, ..settings.clone() }))
            }
            _ => Ok((Self::Direct, settings.clone())),
        }
    }

    /// The faults that this store can have.
    pub fn faults(&self) -> &'static [StoreFault] {
        match self {
            Self::Direct => &[],
            Self::File(_) => &[StoreFault::Stall],
            Self::Proxy(_) => &[StoreFault::Stall, StoreFault::Cut, StoreFault::HalfOpen],
        }
    }

    /// Injects a fault, and ends it.
    pub async fn inject(&self, fault: StoreFault) -> anyhow::Result<()> {
        match self {
            Self::Direct => {}
            Self::File(path) => {
                let path = path.clone();
                tokio::task::spawn_blocking(move || lock(&path)).await??;
            }
            Self::Proxy(proxy) => {
                match fault {
                    StoreFault::Stall => proxy.set(LinkFault::Stall(Direction::Both)),
                    StoreFault::Cut => proxy.set(LinkFault::Cut),
                    StoreFault::HalfOpen => proxy.set(LinkFault::HalfOpen),
                }
                if fault != StoreFault::HalfOpen {
                    tokio::time::sleep(OUTAGE).await;
                }
                proxy.heal();
            }
        }
        Ok(())
    }
}

/// Keeps all writers of the file waiting.
fn lock(path: &std::path::Path) -> anyhow::Result<()> {
    let other = Connection::open(path)?;
    other.busy_timeout(OUTAGE * 6)?;
    other.execute_batch("BEGIN IMMEDIATE")?;
    std::thread::sleep(OUTAGE);
    other.execute_batch("COMMIT")?;
    Ok(())
}
