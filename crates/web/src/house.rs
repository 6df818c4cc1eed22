//! What every request needs, and what is to be set before the first one comes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use longshore::{Clock, Ledger, MemoryPermits, Permits, PoolName, Store, SystemClock, Timestamp};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::door::{Door, Lock};
use crate::{api, listen};

/// How much of anything a stranger may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest body that is read at once; streams of units have no end, but their lines have this one.
    pub body: usize,
    /// Longest time until a request's head is there, and until a plain one is answered.
    pub time: Duration,
    /// Connections at once.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { body: 17 * 1024 * 1024, time: Duration::from_secs(30), connections: 10_000 }
    }
}

/// Longshore over HTTP.
pub struct Web {
    house: House,
    more: Router,
}

/// What every request needs.
pub(crate) struct House {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) permits: Arc<dyn Permits>,
    /// Pools that the configuration knows, with how many permits they have.
    pub(crate) pools: BTreeMap<PoolName, u32>,
    pub(crate) door: Door,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Limits,
    /// Becomes true when we are to stop: whoever waits for something hears of it.
    pub(crate) stopping: watch::Sender<bool>,
}

impl House {
    /// Returns when we are to stop.
    pub(crate) fn ending(&self) -> impl Future<Output = ()> + use<> {
        let mut stopping = self.stopping.subscribe();
        async move {
            if stopping.wait_for(|stopping| *stopping).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl Web {
    /// A store and its ledger, to whoever may come in.
    pub fn new(store: Arc<dyn Store>, ledger: Arc<dyn Ledger>, lock: Lock) -> Self {
        let house = House {
            store,
            door: Door::new(Arc::clone(&ledger), lock),
            ledger,
            permits: Arc::new(MemoryPermits::default()),
            pools: BTreeMap::new(),
            clock: Arc::new(SystemClock),
            limits: Limits::default(),
            stopping: watch::Sender::new(false),
        };
        Self { house, more: Router::new() }
    }

    /// Bounded pools, and those of them that have a size before anybody has asked of them.
    #[must_use]
    pub fn pools(self, permits: Arc<dyn Permits>, pools: BTreeMap<PoolName, u32>) -> Self {
        Self { house: House { permits, pools, ..self.house }, ..self }
    }

    /// The time by which tokens end.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { house: House { clock, ..self.house }, ..self }
    }

    /// How much a stranger may take.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { house: House { limits, ..self.house }, ..self }
    }

    /// Routes of others beside ours, as the gateway's.
    #[must_use]
    pub fn beside(self, more: Router) -> Self {
        Self { more: self.more.merge(more), ..self }
    }

    /// The routes. Whoever serves them puts a [`std::net::SocketAddr`] among each request's extensions,
    /// and sees to limits on connections and heads.
    pub fn router(self) -> Router {
        api::routes(&Arc::new(self.house)).merge(self.more)
    }

    /// Serves over a listener until `end`, and then what is under way.
    pub async fn serve(
        self,
        listener: TcpListener,
        tls: Option<listen::Tls>,
        end: impl Future<Output = ()>,
    ) {
        let (limits, stopping) = (self.house.limits, self.house.stopping.clone());
        let end = async move {
            end.await;
            stopping.send_replace(true);
        };
        listen::listen(listener, tls, limits, self.router(), end).await;
    }
}
