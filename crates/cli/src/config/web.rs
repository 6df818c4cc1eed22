//! `[web]` and `[dispatch]`.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use longshore::{ByteSize, PoolName, duration};
use longshore_dispatch::system::{BaseSystem, JobRole, QueueSystem};
use longshore_web::{ConnectionLimits, ProxyConfig, PublicUrl};

use super::{ListenAddress, value};

section! {
    /// `[web]`: the API server.
    WebConfig {
        /// The address to listen on.
        #[serde(deserialize_with = "value::parsed")]
        listen: ListenAddress = ListenAddress::Tcp((Ipv4Addr::LOCALHOST, 7717).into()),
        /// The certificate's file.
        #[serde(deserialize_with = "value::optional")]
        tls_cert: Option<PathBuf> = None,
        /// The file of its private key.
        #[serde(deserialize_with = "value::optional")]
        tls_key: Option<PathBuf> = None,
        /// The URL under which users reach the server, if a proxy is in front of it.
        #[serde(deserialize_with = "value::optional")]
        public_url: Option<PublicUrl> = None,
        /// Addresses of proxies: `X-Forwarded-*` headers of their connections are believed.
        trusted_proxies: BTreeSet<IpAddr> = BTreeSet::new(),
        /// Maximum size of a request body.
        max_body: ByteSize = ByteSize(17 << 20),
        /// Timeout for reading a request's head, for answering a request that does not wait, and for a client that
        /// does not read its response.
        #[serde(deserialize_with = "duration::positive")]
        time_limit: Duration = Duration::from_secs(30),
        /// Maximum number of concurrent connections.
        #[serde(deserialize_with = "value::at_least_one")]
        connections: usize = 10_000,
        /// Maximum number of concurrent connections of one address.
        #[serde(deserialize_with = "value::at_least_one")]
        connections_per_address: usize = 2_500,
        /// Maximum number of requests in progress of one token.
        #[serde(deserialize_with = "value::at_least_one")]
        requests_per_token: usize = 1_000,
        /// Requests per second of one token before it gets 429; 0 is unbounded.
        requests_per_second: u32 = 1_000,
        /// Audited actions per minute of one token below admin before it gets 429; 0 is unbounded.
        audited_per_minute: u32 = 60,
        /// Memory for the bodies of all requests and responses in progress.
        body_memory: ByteSize = ByteSize(256 << 20),
        /// Whether a worker server for scripts runs.
        dispatch: bool = false,
        /// Its addresses; 127.0.0.1 if empty.
        dispatch_listen: Vec<IpAddr> = Vec::new(),
        /// Wrong tokens per address and minute before it gets 429.
        wrong_tokens: u32 = 20,
        /// Pools from which every tenant may hold permits.
        shared_pools: BTreeSet<PoolName> = BTreeSet::new(),
    }
}

impl WebConfig {
    /// The proxies in front of the server.
    pub fn proxies(&self) -> ProxyConfig {
        ProxyConfig { public_url: self.public_url.clone(), trusted: self.trusted_proxies.clone() }
    }

    /// Limits for clients, with at most this number of connections.
    pub fn limits(&self, max_connections: usize) -> ConnectionLimits {
        let bytes = |size: ByteSize| usize::try_from(size.0).unwrap_or(usize::MAX);
        ConnectionLimits {
            body: bytes(self.max_body),
            time: self.time_limit,
            connections: self.connections.min(max_connections),
            connections_per_address: self.connections_per_address,
            requests_per_token: self.requests_per_token,
            requests_per_second: Some(self.requests_per_second).filter(|max| *max > 0),
            audited_per_minute: Some(self.audited_per_minute).filter(|max| *max > 0),
            body_memory: bytes(self.body_memory).max(bytes(self.max_body)),
            wrong_tokens: self.wrong_tokens,
        }
    }
}

section! {
    /// `[dispatch]`: location and defaults of a pool of script workers.
    DispatchConfig {
        #[serde(deserialize_with = "value::optional")]
        dir: Option<PathBuf> = None,
        /// The launcher of its workers.
        #[serde(deserialize_with = "value::parsed")]
        qsys: QueueSystem = QueueSystem { base: BaseSystem::Local, role: JobRole::Workers },
        /// Number of workers.
        workers: u32 = 1,
        /// Threads per worker. The settings replace 0 by the number of cores.
        #[serde(rename = "nthr")]
        threads: u32 = 0,
    }
}

impl DispatchConfig {
    /// The pool's folder: `typed`, or the configured one, or the default.
    pub fn folder(&self, typed: Option<&Path>) -> PathBuf {
        let home = || std::env::var_os(crate::env::HOME).map_or_else(|| ".".into(), PathBuf::from);
        let typed = typed.map(Path::to_path_buf).or_else(|| self.dir.clone());
        typed.unwrap_or_else(|| home().join(".longshore/dispatch"))
    }
}
