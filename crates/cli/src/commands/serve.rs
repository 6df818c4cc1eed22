//! `serve`: the API, the gateway, health and the dashboard, until somebody wants it to end; and upkeep
//! of the store beside them.

mod scripts;

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use anyhow::Context;
use longshore::services;
use longshore_web::{Limits, Lock, Tls, Web};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use self::scripts::Folder;
use super::dispatch::host::Hosted;
use super::{interrupted, patiently};
use crate::args::web::Serve as Typed;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;
use crate::{inference, permits, store};

/// Open files that are no connections of ours.
const FILES: usize = 256;

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    let files = widen();
    let listen = typed.listen.unwrap_or(settings.web.listen);
    let tls = tls(&typed, settings)?;
    let is_reachable = !listen.ip().is_loopback();
    if is_reachable && tls.is_none() && !typed.no_tls {
        let open = usage(format!("{listen} can be reached by others, and there is no TLS"));
        return Err(open).hint("add --tls-cert FILE --tls-key FILE, or listen on 127.0.0.1");
    }
    let (store, ledger) = patiently(settings, || store::open_both(settings)).await?;
    let is_locked = ledger.is_locked().await?;
    if is_reachable && !is_locked {
        let open = usage(format!("{listen} can be reached by others, and there is no token yet"));
        return Err(open).hint("longshore token add --role admin --label \"who has it\"");
    }
    let lock = match is_reachable || typed.locked || settings.web.locked {
        true => Lock::Always,
        false => Lock::OnceThereIsAToken,
    };
    let known = settings.bounded.pools.iter().map(|(name, shape)| (name.clone(), shape.max));
    let desk = inference::desk(&ledger, settings)?.with_pools(permits::book(settings).await?);
    let web = Web::new(Arc::clone(&store), ledger, lock)
        .pools(permits::open(settings).await?, known.collect())
        .shared_pools(settings.web.shared_pools.clone())
        .scripts(Arc::new(Folder(settings.dispatch.folder(None))))
        .gateway(Arc::new(desk.clone()))
        .limits(Limits {
            connections: settings.web.limits.connections.min(files),
            ..settings.web.limits
        });
    let listener = TcpListener::bind(listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {listen}"))?;
    let hosted = match typed.dispatch || settings.web.dispatch {
        true => {
            let listen = match typed.dispatch_listen.is_empty() {
                true => settings.web.dispatch_listen.clone(),
                false => typed.dispatch_listen,
            };
            Some(Hosted::bind(listen, Arc::clone(&store), settings).await?)
        }
        false => None,
    };
    let address = listener.local_addr()?;
    // Whoever hears the address may send a signal: from now on it ends us in good order.
    let mut end = Box::pin(ended());
    if futures_util::poll!(&mut end).is_ready() {
        return Ok(ExitCode::Good);
    }
    // The same holds for the worker server, which listens to signals by itself.
    let mut hosting = Box::pin(host(hosted));
    let hosted = futures_util::poll!(&mut hosting);
    announce(address, tls.is_some(), lock == Lock::Always || is_locked, settings)?;
    let upkeep = services::all(
        Arc::clone(&store),
        || desk.session(),
        Arc::new(Notify::new()),
        settings.retention,
    );
    let serving = async {
        tokio::select! {
            () = web.serve(listener, tls, end) => {}
            () = inference::beside(&desk, &*store) => {}
            () = desk.be_present(&*store) => {}
            () = upkeep => {}
        }
    };
    // Each ends at the same signal; scripts that run may take longer than requests.
    let ((), hosted) = match hosted {
        Poll::Ready(ended) => (serving.await, ended),
        Poll::Pending => tokio::join!(serving, hosting),
    };
    inference::close_books(&desk).await;
    desk.leave(&*store).await?;
    hosted.map(|()| ExitCode::Good)
}

/// Takes as many open files as the system allows: every connection is one. How many connections that makes.
fn widen() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wider = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, wider) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
    // Some are for the store, the log and calls.
    let most = getrlimit(Resource::Nofile).current.and_then(|most| usize::try_from(most).ok());
    most.map_or(usize::MAX, |most| most.saturating_sub(FILES).max(16))
}

/// Hands scripts to workers, if that is wanted.
async fn host(hosted: Option<Hosted>) -> anyhow::Result<()> {
    match hosted {
        Some(hosted) => hosted.run().await,
        None => Ok(()),
    }
}

fn tls(typed: &Typed, settings: &Settings) -> anyhow::Result<Option<Tls>> {
    let pair = (
        typed.tls_cert.as_ref().or(settings.web.tls_cert.as_ref()),
        typed.tls_key.as_ref().or(settings.web.tls_key.as_ref()),
    );
    match pair {
        _ if typed.no_tls => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(Tls::read(certificate, key)?)),
        (None, None) => Ok(None),
        _ => Err(usage("a certificate and its key belong together"))
            .hint("say both --tls-cert FILE and --tls-key FILE"),
    }
}

fn announce(
    address: SocketAddr,
    is_secure: bool,
    is_locked: bool,
    settings: &Settings,
) -> anyhow::Result<()> {
    let scheme = if is_secure { "https" } else { "http" };
    let answer = serde_json::json!({ "listen": address, "tls": is_secure, "locked": is_locked });
    settings.output.answer(&answer, || {
        let whom = match is_locked {
            true => "to whoever has a token",
            false => "to everybody on this machine, as there is no token yet",
        };
        format!("serving {scheme}://{address}/ {whom}")
    })
}

async fn ended() {
    if interrupted().await.is_err() {
        std::future::pending::<()>().await;
    }
}
