//! `serve`: serves the API, the gateway, health checks and the dashboard until a signal, and
//! maintains the store.

mod dispatch_port;
mod first_token;
mod greeting;

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;

use anyhow::Context;
use longshore::services;
use longshore_web::{AuthMode, ServerCertificate, Web, WebListener};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::Notify;

use self::dispatch_port::DispatchFolder;
use self::greeting::Greeting;
use super::dispatch::embedded_server::EmbeddedServer;
use super::{retry_while_unavailable, shutdown_signal};
use crate::alert_sinks::AlertSinks;
use crate::args::web::ServeArgs as Typed;
use crate::config::ListenAddress;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;
use crate::{inference, semaphore_backend, store};

/// Open files that are no connections of clients.
const RESERVED_FILES: usize = 256;

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    let files = raise_file_limit();
    let listen = typed.listen.clone().unwrap_or_else(|| settings.web.listen.clone());
    let tls = tls(&typed, &listen, settings)?;
    check_exposure(&typed, &listen, tls.is_some())?;
    let mode = if typed.no_auth { AuthMode::NoAuth } else { AuthMode::TokenRequired };
    let (store, ledger) = retry_while_unavailable(settings, || store::open_with_ledger(settings)).await?;
    let known = settings.bounded.pools.iter().map(|(name, shape)| (name.clone(), shape.max));
    let inference = inference::open_inference(&ledger, settings)?
        .with_pools(semaphore_backend::registry(settings).await?);
    let web = Web::new(Arc::clone(&store), Arc::clone(&ledger), mode)
        .pools(semaphore_backend::open(settings).await?, known.collect())
        .shared_pools(settings.web.shared_pools.clone())
        .scripts(Arc::new(DispatchFolder(settings.dispatch.folder(None))))
        .gateway(Arc::new(inference.clone()))
        .proxies(settings.web.proxies())
        .limits(settings.web.limits(files));
    let listener = bind(&listen).await.with_context(|| format!("cannot listen on {listen}"))?;
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
    let listen = match &listener {
        WebListener::Tcp(listener) => ListenAddress::Tcp(listener.local_addr()?),
        WebListener::Unix(_) => listen,
    };
    // Once it is bound: a second server that cannot listen makes no token.
    let token = match mode {
        AuthMode::TokenRequired => first_token::add(&*ledger).await?,
        AuthMode::NoAuth => None,
    };
    // A client that reads the address may send a signal at once: from here on it shuts down in
    // order.
    let mut end = Box::pin(stop_signal());
    if futures_util::poll!(&mut end).is_ready() {
        return Ok(ExitCode::Good);
    }
    // Polled once for the same reason: the worker server has its own signal handlers.
    let mut hosting = Box::pin(run_embedded(hosted));
    let hosted = futures_util::poll!(&mut hosting);
    Greeting { listen, is_tls: tls.is_some(), mode, token }.print(settings)?;
    let maintenance = services::run_all(
        Arc::clone(&store),
        || inference.session(),
        Arc::new(Notify::new()),
        settings.retention,
        AlertSinks::open(&settings.alerts)?,
    );
    let serving = Box::pin(async {
        tokio::select! {
            () = web.serve(listener, tls, end) => {}
            () = inference::run_background(&inference, &*store) => {}
            () = inference.run_heartbeat(&*store) => {}
            () = maintenance => {}
        }
    });
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

/// Rejects an address that other machines can reach without TLS or without tokens.
fn check_exposure(typed: &Typed, listen: &ListenAddress, is_tls: bool) -> anyhow::Result<()> {
    if !listen.is_reachable() {
        return Ok(());
    }
    if typed.no_auth {
        let open =
            usage(format!("{listen} is reachable from other machines: --no-auth is for loopback only"));
        return Err(open).hint("omit --no-auth, or listen on 127.0.0.1 or unix:PATH");
    }
    if !is_tls && !typed.no_tls {
        let open = usage(format!("{listen} is reachable from other machines, and there is no TLS"));
        return Err(open).hint("add --tls-cert FILE --tls-key FILE, or listen on 127.0.0.1");
    }
    Ok(())
}

async fn bind(listen: &ListenAddress) -> anyhow::Result<WebListener> {
    Ok(match listen {
        ListenAddress::Tcp(address) => WebListener::Tcp(TcpListener::bind(address).await?),
        ListenAddress::Unix(path) => {
            remove_stale_socket(path).await?;
            WebListener::Unix(UnixListener::bind(path)?)
        }
    })
}

/// Removes the socket of a server that has ended: one that refuses connections.
async fn remove_stale_socket(path: &Path) -> std::io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if !is_socket {
        return Ok(());
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        _ => Ok(()),
    }
}

fn tls(
    typed: &Typed,
    listen: &ListenAddress,
    settings: &Settings,
) -> anyhow::Result<Option<ServerCertificate>> {
    let pair = (
        typed.tls_cert.as_ref().or(settings.web.tls_cert.as_ref()),
        typed.tls_key.as_ref().or(settings.web.tls_key.as_ref()),
    );
    match pair {
        _ if typed.no_tls || matches!(listen, ListenAddress::Unix(_)) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(ServerCertificate::read(certificate, key)?)),
        (None, None) => Ok(None),
        _ => Err(usage("a certificate and its key belong together"))
            .hint("give both --tls-cert FILE and --tls-key FILE"),
    }
}

async fn stop_signal() {
    if shutdown_signal().await.is_err() {
        std::future::pending::<()>().await;
    }
}
