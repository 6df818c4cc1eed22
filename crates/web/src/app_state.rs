//! The shared state of all requests, and its configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn;
use longshore::{Clock, Ledger, MemoryPermits, Permits, PoolName, Store, SystemClock, Timestamp};
use longshore_ai::gateway::InferenceBackend;
use tokio::sync::watch;

use crate::api::health::Readiness;
use crate::auth::{AuthMode, Authenticator};
use crate::caller_limits::CallerLimits;
use crate::change_broadcast::ChangeBroadcasts;
use crate::connection_limiter::ConnectionLimiter;
use crate::dispatch_port::ScriptPools;
use crate::proxy_headers::{ProxyConfig, with_host_policy};
use crate::server::WebListener;
use crate::timeseries::{self, TimeSeries};
use crate::tls::ServerCertificate;
use crate::{api, gateway, server};

/// Limits on untrusted clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Maximum size of a request body; of one line for streams of units.
    pub body: usize,
    /// Timeout for reading a request's head, for answering a request that does not wait, and for a client that
    /// does not read its response.
    pub time: Duration,
    /// Maximum number of concurrent connections.
    pub connections: usize,
    /// Maximum number of concurrent connections of one address. Loopback addresses and
    /// [`ProxyConfig::trusted`] are exempt: proxies connect from there.
    pub connections_per_address: usize,
    /// Maximum number of requests in progress of one token, streams included.
    pub requests_per_token: usize,
    /// Requests per second of one token before it gets 429; `None` is unbounded.
    pub requests_per_second: Option<u32>,
    /// Audited actions per minute of one token below admin before it gets 429, after those of ten minutes at
    /// once; `None` is unbounded.
    pub audited_per_minute: Option<u32>,
    /// Memory for the bodies of all requests and responses in progress, in bytes; one tenant may use a
    /// quarter.
    pub body_memory: usize,
    /// Wrong tokens per address and minute before it gets 429.
    pub wrong_tokens: u32,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            body: 17 * 1024 * 1024,
            time: Duration::from_secs(30),
            connections: 10_000,
            connections_per_address: 2_500,
            requests_per_token: 1_000,
            requests_per_second: Some(1_000),
            audited_per_minute: Some(60),
            body_memory: 256 * 1024 * 1024,
            wrong_tokens: 20,
        }
    }
}

/// Longshore over HTTP.
pub struct Web {
    app: AppState,
    counter: Option<Arc<dyn InferenceBackend>>,
    extra_routes: Router,
}

/// The shared state of all requests.
pub(crate) struct AppState {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) permits: Arc<dyn Permits>,
    /// Pools of the configuration, with their number of permits.
    pub(crate) pools: BTreeMap<PoolName, u32>,
    /// Pools without an owner, with permits that every tenant may hold.
    pub(crate) shared_pools: BTreeSet<PoolName>,
    /// Pools of script workers, if dispatch is configured.
    pub(crate) scripts: Option<Arc<dyn ScriptPools>>,
    pub(crate) timeseries: TimeSeries,
    pub(crate) broadcasts: ChangeBroadcasts,
    pub(crate) auth: Authenticator,
    pub(crate) readiness: Readiness,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: ConnectionLimits,
    pub(crate) caller_limits: CallerLimits,
    /// Becomes true when the server is to stop; waiting requests end then.
    pub(crate) stopping: watch::Sender<bool>,
}

impl AppState {
    /// Waits until the server is to stop.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + use<> {
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

    /// Takes samples for the charts in a loop.
    async fn sample_loop(&self) {
        loop {
            if let Err(error) = self.timeseries.sample(&*self.store, self.now()).await {
                tracing::debug!(%error, "cannot take a sample for the charts");
            }
            tokio::time::sleep(timeseries::SAMPLE_INTERVAL).await;
        }
    }
}

impl Web {
    /// Serves a store and its ledger.
    pub fn new(store: Arc<dyn Store>, ledger: Arc<dyn Ledger>, lock: AuthMode) -> Self {
        let app = AppState {
            store,
            auth: Authenticator::new(Arc::clone(&ledger), lock),
            ledger,
            permits: Arc::new(MemoryPermits::default()),
            pools: BTreeMap::new(),
            shared_pools: BTreeSet::new(),
            scripts: None,
            timeseries: TimeSeries::default(),
            broadcasts: ChangeBroadcasts::default(),
            readiness: Readiness::default(),
            clock: Arc::new(SystemClock),
            limits: ConnectionLimits::default(),
            caller_limits: CallerLimits::default(),
            stopping: watch::Sender::new(false),
        };
        Self { app, counter: None, extra_routes: Router::new() }
    }

    /// Sets the bounded pools' back end, and the sizes of configured pools.
    #[must_use]
    pub fn pools(self, permits: Arc<dyn Permits>, pools: BTreeMap<PoolName, u32>) -> Self {
        Self { app: AppState { permits, pools, ..self.app }, ..self }
    }

    /// Sets the pools with permits that every tenant's tokens may hold. Without, a tenant holds permits of
    /// its own pools (`TENANT/NAME`) only.
    #[must_use]
    pub fn shared_pools(self, shared_pools: BTreeSet<PoolName>) -> Self {
        Self { app: AppState { shared_pools, ..self.app }, ..self }
    }

    /// Sets the source of script worker pools.
    #[must_use]
    pub fn scripts(self, scripts: Arc<dyn ScriptPools>) -> Self {
        Self { app: AppState { scripts: Some(scripts), ..self.app }, ..self }
    }

    /// Sets the clock, by which tokens expire.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { app: AppState { clock, ..self.app }, ..self }
    }

    /// Sets the limits on untrusted clients.
    #[must_use]
    pub fn limits(mut self, limits: ConnectionLimits) -> Self {
        self.app.auth.wrong_tokens = limits.wrong_tokens;
        Self { app: AppState { limits, ..self.app }, ..self }
    }

    /// Sets the proxies in front of the server.
    #[must_use]
    pub fn proxies(mut self, proxies: ProxyConfig) -> Self {
        self.app.auth.proxies = proxies;
        self
    }

    /// Serves tenants' AI profiles at `/v1` in OpenAI's and Anthropic's API formats, with the same tokens as
    /// the API.
    #[must_use]
    pub fn gateway(self, counter: Arc<dyn InferenceBackend>) -> Self {
        Self { counter: Some(counter), ..self }
    }

    /// Adds routes.
    #[must_use]
    pub fn with_routes(self, routes: Router) -> Self {
        Self { extra_routes: self.extra_routes.merge(routes), ..self }
    }

    /// The routes. The caller's server must put a [`std::net::SocketAddr`] into each request's extensions and
    /// limit connections and heads. No samples are taken, so charts stay empty.
    pub fn router(self) -> Router {
        self.build().1
    }

    fn build(self) -> (Arc<AppState>, Router) {
        let app = Arc::new(self.app);
        let mut router = api::routes(&app).merge(self.extra_routes);
        if let Some(counter) = self.counter {
            router = router.merge(gateway::routes(&app, counter));
        }
        let policy_app = Arc::clone(&app);
        let policy = from_fn(move |request, next| with_host_policy(Arc::clone(&policy_app), request, next));
        (app, router.layer(policy))
    }

    /// Serves on a listener until `end` completes, then finishes requests in flight.
    pub async fn serve(
        self,
        listener: impl Into<WebListener>,
        tls: Option<ServerCertificate>,
        end: impl Future<Output = ()> + Send,
    ) {
        let (limits, stopping) = (self.app.limits, self.app.stopping.clone());
        let end = async move {
            end.await;
            stopping.send_replace(true);
        };
        let proxies = self.app.auth.proxies.trusted.clone();
        let limiter = ConnectionLimiter::new(limits.connections, limits.connections_per_address, proxies);
        let (app, router) = self.build();
        tokio::select! {
            () = server::serve(listener.into(), tls, limits, limiter, router, Box::pin(end)) => {}
            () = app.sample_loop() => {}
        }
        // Reads of clients that have left end at their time limit.
        app.caller_limits.read_tasks.close();
        let _ = tokio::time::timeout(limits.time, app.caller_limits.read_tasks.wait()).await;
    }
}
