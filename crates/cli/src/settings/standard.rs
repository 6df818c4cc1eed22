//! Resolves the settings of dispatch and of the API, which the quickstart build does not have.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use longshore::PoolName;
use longshore_dispatch::system::QueueSystem;

use super::{at_key, cores, parse_name, parse_names, path, positive_duration};
use crate::byte_size::ByteSize;
use crate::config::{self, Config};
use crate::error::usage;

/// Settings of the API server.
#[derive(Debug, Clone)]
pub struct WebSettings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The certificate's file.
    pub tls_cert: Option<PathBuf>,
    /// The file of its private key.
    pub tls_key: Option<PathBuf>,
    /// Whether every client needs a token, even while there is none.
    pub locked: bool,
    /// Limits for clients.
    pub limits: longshore_web::Limits,
    /// Whether a worker server for scripts runs.
    pub dispatch: bool,
    /// Its addresses; 127.0.0.1 if empty.
    pub dispatch_listen: Vec<IpAddr>,
    /// Pools from which every tenant may hold permits.
    pub shared_pools: BTreeSet<PoolName>,
}

/// Location and defaults of a pool of script workers.
#[derive(Debug, Clone)]
pub struct DispatchSettings {
    dir: Option<PathBuf>,
    /// The launcher of its workers.
    pub qsys: QueueSystem,
    /// Number of workers.
    pub workers: u32,
    /// Threads per worker.
    pub threads: u32,
}

impl DispatchSettings {
    /// The pool's folder: `typed`, or the configured one, or the default.
    pub fn folder(&self, typed: Option<&Path>) -> PathBuf {
        let home = || std::env::var_os(crate::env::HOME).map_or_else(|| ".".into(), PathBuf::from);
        let typed = typed.map(Path::to_path_buf).or_else(|| self.dir.clone());
        typed.unwrap_or_else(|| home().join(".longshore/dispatch"))
    }
}

pub(super) fn dispatch(config: &Config) -> anyhow::Result<DispatchSettings> {
    let config::DispatchConfig { dir, qsys, workers, nthr } = &config.dispatch;
    Ok(DispatchSettings {
        dir: path(dir),
        qsys: parse_name("dispatch.qsys", qsys)?,
        workers: *workers,
        threads: if *nthr == 0 { cores() } else { *nthr },
    })
}

pub(super) fn web(config: &Config) -> anyhow::Result<WebSettings> {
    let config::WebConfig { listen, tls_cert, tls_key, locked, .. } = &config.web;
    let config::WebConfig { max_body, time_limit, connections, wrong_tokens, shared_pools, .. } =
        &config.web;
    let ByteSize(most) = at_key("web.max_body", max_body.parse().map_err(usage))?;
    let limits = longshore_web::Limits {
        body: usize::try_from(most)?,
        time: positive_duration("web.time_limit", time_limit)?,
        connections: usize::try_from(*connections)?.max(1),
        wrong_tokens: *wrong_tokens,
    };
    Ok(WebSettings {
        listen: parse_name("web.listen", listen)?,
        tls_cert: path(tls_cert),
        tls_key: path(tls_key),
        locked: *locked,
        limits,
        dispatch: config.web.dispatch,
        dispatch_listen: parse_names("web.dispatch_listen", &config.web.dispatch_listen)?,
        shared_pools: parse_names("web.shared_pools", shared_pools)?.into_iter().collect(),
    })
}
