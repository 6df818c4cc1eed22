//! `serve`: serves the API, the gateway, health checks and the dashboard until a signal, and
//! maintains the store.

mod dispatch_port;

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use anyhow::Context;
use longshore::services;
use longshore_web::{AuthMode, ServerCertificate, Web};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use self::dispatch_port::DispatchFolder;
use super::dispatch::embedded_server::EmbeddedServer;
use super::{retry_while_unavailable, shutdown_signal};
use crate::args::web::ServeArgs as Typed;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;
use crate::{inference, semaphore_backend, store};

/// Open files that are no connections of clients.
const RESERVED_FILES: usize = 256;

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    let files = raise_file_limit();
    let listen = typed.listen.unwrap_or(settings.web.listen);
    let tls = tls(&typed, settings)?;
    let is_reachable = !listen.ip().is_loopback();
    if is_reachable && tls.is_none() && !typed.no_tls {
        let open = usage(format!("{listen} is reachable from other machines, and there is no TLS"));
        return Err(open).hint("add --tls-cert FILE --tls-key FILE, or listen on 127.0.0.1");
    }
    let (store, ledger) = retry_while_unavailable(settings, || store::open_with_ledger(settings)).await?;
    let is_locked = ledger.is_locked().await?;
    if is_reachable && !is_locked {
        let open = usage(format!("{listen} is reachable from other machines, and there is no token yet"));
        return Err(open).hint("longshore token add --role admin --label \"its owner\"");
    }
    let lock = match is_reachable || typed.locked || settings.web.locked {
        true => AuthMode::TokenRequired,
        false => AuthMode::OpenUntilFirstToken,
    };
    let known = settings.bounded.pools.iter().map(|(name, shape)| (name.clone(), shape.max));
    let inference = inference::open_inference(&ledger, settings)?
        .with_pools(semaphore_backend::registry(settings).await?);
    let web = Web::new(Arc::clone(&store), ledger, lock)
        .pools(semaphore_backend::open(settings).await?, known.collect())
        .shared_pools(settings.web.shared_pools.clone())
        .scripts(Arc::new(DispatchFolder(settings.dispatch.folder(None))))
        .gateway(Arc::new(inference.clone()))
        .limits(settings.web.limits(files));
    let listener = TcpListener::bind(listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {listen}"))?;
    let hosted = match typed.dispatch || settings.web.dispatch {
        true => {
            let listen = match typed.dispatch_listen.is_empty() {
                true => settings.web.dispatch_listen.clone(),
                false => typed.dispatch_listen,
            };
            Some(EmbeddedServer::bind(listen, Arc::clone(&store), settings).await?)
        }
        false => None,
    };
    let address = listener.local_addr()?;
    // A client that reads the address may send a signal at once: from here on it shuts down in
    // order.
    let mut end = Box::pin(stop_signal());
    if futures_util::poll!(&mut end).is_ready() {
        return Ok(ExitCode::Good);
    }
    // Polled once for the same reason: the worker server has its own signal handlers.
    let mut hosting = Box::pin(run_embedded(hosted));
    let hosted = futures_util::poll!(&mut hosting);
    print_address(address, tls.is_some(), lock == AuthMode::TokenRequired || is_locked, settings)?;
    let maintenance = services::run_all(
        Arc::clone(&store),
        || inference.session(),
        Arc::new(Notify::new()),
        settings.retention,
    );
    let serving = async {
        tokio::select! {
            () = web.serve(listener, tls, end) => {}
            () = inference::run_background(&inference, &*store) => {}
            () = inference.run_heartbeat(&*store) => {}
            () = maintenance => {}
        }
    };
    // Both stop at the same signal; running scripts may take longer than requests.
    let ((), hosted) = match hosted {
        Poll::Ready(ended) => (serving.await, ended),
        Poll::Pending => tokio::join!(serving, hosting),
    };
    inference::flush(&inference).await;
    inference.close_session(&*store).await?;
    hosted.map(|()| ExitCode::Good)
}

/// Raises the limit of open files to the maximum, as every connection is one. Returns how many
/// connections fit.
fn raise_file_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wider = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, wider) {
        tracing::debug!(%error, "cannot raise the limit of open files");
    }
    // Some are for the store, the log and outgoing requests.
    let most = getrlimit(Resource::Nofile).current.and_then(|most| usize::try_from(most).ok());
    most.map_or(usize::MAX, |most| most.saturating_sub(RESERVED_FILES).max(16))
}

/// Runs the embedded worker server, if there is one.
async fn run_embedded(hosted: Option<EmbeddedServer>) -> anyhow::Result<()> {
    match hosted {
        Some(hosted) => hosted.run().await,
        None => Ok(()),
    }
}

fn tls(typed: &Typed, settings: &Settings) -> anyhow::Result<Option<ServerCertificate>> {
    let pair = (
        typed.tls_cert.as_ref().or(settings.web.tls_cert.as_ref()),
        typed.tls_key.as_ref().or(settings.web.tls_key.as_ref()),
    );
    match pair {
        _ if typed.no_tls => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(ServerCertificate::read(certificate, key)?)),
        (None, None) => Ok(None),
        _ => Err(usage("a certificate and its key belong together"))
            .hint("give both --tls-cert FILE and --tls-key FILE"),
    }
}

fn print_address(
    address: SocketAddr,
    is_secure: bool,
    is_locked: bool,
    settings: &Settings,
) -> anyhow::Result<()> {
    let scheme = if is_secure { "https" } else { "http" };
    let answer = serde_json::json!({ "listen": address, "tls": is_secure, "locked": is_locked });
    settings.output.answer(&answer, || {
        let whom = match is_locked {
            true => "to clients with a token",
            false => "to all clients on this machine, as there is no token yet",
        };
        format!("serving {scheme}://{address}/ {whom}")
    })
}

async fn stop_signal() {
    if shutdown_signal().await.is_err() {
        std::future::pending::<()>().await;
    }
}
