//! Settings of dispatch and of the API, which the quickstart build does not have.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use longshore::PoolName;
use longshore_dispatch::system::QueueSystem;

use super::{all_named, at_key, cores, length, named, path};
use crate::config::{self, Config};
use crate::error::usage;
use crate::size::Size;

/// How the API is served.
#[derive(Debug, Clone)]
pub struct WebSettings {
    /// Where.
    pub listen: SocketAddr,
    /// The certificate's file.
    pub tls_cert: Option<PathBuf>,
    /// The file of its key.
    pub tls_key: Option<PathBuf>,
    /// Whether everybody needs a token, even while there is none.
    pub locked: bool,
    /// What a stranger may take.
    pub limits: longshore_web::Limits,
    /// Whether script workers are served.
    pub dispatch: bool,
    /// Where they may come to; 127.0.0.1 if that is not said.
    pub dispatch_listen: Vec<IpAddr>,
    /// Pools whose permits every tenant may hold.
    pub shared_pools: BTreeSet<PoolName>,
}

/// Where a pool of script workers is, and what it is like.
#[derive(Debug, Clone)]
pub struct DispatchSettings {
    dir: Option<PathBuf>,
    /// What starts its workers.
    pub qsys: QueueSystem,
    /// How many.
    pub workers: u32,
    /// Threads of each.
    pub threads: u32,
}

impl DispatchSettings {
    /// The pool's folder, if `typed` was.
    pub fn folder(&self, typed: Option<&Path>) -> PathBuf {
        let home = || std::env::var_os(crate::env::HOME).map_or_else(|| ".".into(), PathBuf::from);
        let typed = typed.map(Path::to_path_buf).or_else(|| self.dir.clone());
        typed.unwrap_or_else(|| home().join(".longshore/dispatch"))
    }
}

pub(super) fn dispatch(config: &Config) -> anyhow::Result<DispatchSettings> {
    let config::Dispatch { dir, qsys, workers, nthr } = &config.dispatch;
    Ok(DispatchSettings {
        dir: path(dir),
        qsys: named("dispatch.qsys", qsys)?,
        workers: *workers,
        threads: if *nthr == 0 { cores() } else { *nthr },
    })
}

pub(super) fn web(config: &Config) -> anyhow::Result<WebSettings> {
    let config::Web { listen, tls_cert, tls_key, locked, .. } = &config.web;
    let config::Web { max_body, time_limit, connections, wrong_tokens, shared_pools, .. } =
        &config.web;
    let Size(most) = at_key("web.max_body", max_body.parse().map_err(usage))?;
    let limits = longshore_web::Limits {
        body: usize::try_from(most)?,
        time: length("web.time_limit", time_limit)?,
        connections: usize::try_from(*connections)?.max(1),
        wrong_tokens: *wrong_tokens,
    };
    Ok(WebSettings {
        listen: named("web.listen", listen)?,
        tls_cert: path(tls_cert),
        tls_key: path(tls_key),
        locked: *locked,
        limits,
        dispatch: config.web.dispatch,
        dispatch_listen: all_named("web.dispatch_listen", &config.web.dispatch_listen)?,
        shared_pools: all_named("web.shared_pools", shared_pools)?.into_iter().collect(),
    })
}
