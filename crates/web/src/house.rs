//! What every request needs, and what is to be set before the first one comes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use longshore::{Clock, Ledger, MemoryPermits, Permits, PoolName, Store, SystemClock, Timestamp};
use longshore_ai::gateway::Counter;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::door::{Door, Lock};
use crate::feed::Feeds;
use crate::history::{self, History};
use crate::scripts::ScriptPools;
use crate::{api, gateway, listen};

/// How much of anything a stranger may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest body that is read at once; streams of units have no end, but their lines have this one.
    pub body: usize,
    /// Longest time until a request's head is there, and until a plain one is answered.
    pub time: Duration,
    /// Connections at once.
    pub connections: usize,
    /// Wrong tokens of one address in a minute, before it is told to rest.
    pub wrong_tokens: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 17 * 1024 * 1024,
            time: Duration::from_secs(30),
            connections: 10_000,
            wrong_tokens: 20,
        }
    }
}

/// Longshore over HTTP.
pub struct Web {
    house: House,
    counter: Option<Arc<dyn Counter>>,
    more: Router,
}

/// What every request needs.
pub(crate) struct House {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) permits: Arc<dyn Permits>,
    /// Pools that the configuration knows, with how many permits they have.
    pub(crate) pools: BTreeMap<PoolName, u32>,
    /// Pools of no tenant whose permits every tenant may hold.
    pub(crate) shared_pools: BTreeSet<PoolName>,
    /// Pools of script workers, if somebody knows of any.
    pub(crate) scripts: Option<Arc<dyn ScriptPools>>,
    pub(crate) history: History,
    pub(crate) feeds: Feeds,
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

    /// Looks at everything now and then, for the charts.
    async fn watch(&self) {
        loop {
            if let Err(error) = self.history.sample(&*self.store, self.now()).await {
                tracing::debug!(%error, "the charts have a gap");
            }
            tokio::time::sleep(history::EVERY).await;
        }
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
            shared_pools: BTreeSet::new(),
            scripts: None,
            history: History::default(),
            feeds: Feeds::default(),
            clock: Arc::new(SystemClock),
            limits: Limits::default(),
            stopping: watch::Sender::new(false),
        };
        Self { house, counter: None, more: Router::new() }
    }

    /// Bounded pools, and those of them that have a size before anybody has asked of them.
    #[must_use]
    pub fn pools(self, permits: Arc<dyn Permits>, pools: BTreeMap<PoolName, u32>) -> Self {
        Self { house: House { permits, pools, ..self.house }, ..self }
    }

    /// Pools whose permits every tenant's tokens may hold. Without, a tenant holds those of its own pools
    /// (`TENANT/NAME`).
    #[must_use]
    pub fn shared_pools(self, shared_pools: BTreeSet<PoolName>) -> Self {
        Self { house: House { shared_pools, ..self.house }, ..self }
    }

    /// Pools of script workers.
    #[must_use]
    pub fn scripts(self, scripts: Arc<dyn ScriptPools>) -> Self {
        Self { house: House { scripts: Some(scripts), ..self.house }, ..self }
    }

    /// The time by which tokens end.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { house: House { clock, ..self.house }, ..self }
    }

    /// How much a stranger may take.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.house.door.wrong_tokens = limits.wrong_tokens;
        Self { house: House { limits, ..self.house }, ..self }
    }

    /// Tenants' AI profiles at `/v1`, behind the wires of OpenAI and Anthropic, for the same tokens as
    /// everything else.
    #[must_use]
    pub fn gateway(self, counter: Arc<dyn Counter>) -> Self {
        Self { counter: Some(counter), ..self }
    }

    /// Routes of others beside ours.
    #[must_use]
    pub fn beside(self, more: Router) -> Self {
        Self { more: self.more.merge(more), ..self }
    }

    /// The routes. Whoever serves them puts a [`std::net::SocketAddr`] among each request's extensions,
    /// and sees to limits on connections and heads. Nobody watches then: charts stay empty.
    pub fn router(self) -> Router {
        self.parts().1
    }

    fn parts(self) -> (Arc<House>, Router) {
        let house = Arc::new(self.house);
        let mut router = api::routes(&house).merge(self.more);
        if let Some(counter) = self.counter {
            router = router.merge(gateway::routes(&house, counter));
        }
        (house, router)
    }

    /// Serves over a listener until `end`, and then what is under way.
    pub async fn serve(
        self,
        listener: TcpListener,
        tls: Option<listen::Tls>,
        end: impl Future<Output = ()> + Send,
    ) {
        let (limits, stopping) = (self.house.limits, self.house.stopping.clone());
        let end = async move {
            end.await;
            stopping.send_replace(true);
        };
        let (house, router) = self.parts();
        tokio::select! {
            () = listen::listen(listener, tls, limits, router, Box::pin(end)) => {}
            () = house.watch() => {}
        }
    }
}
