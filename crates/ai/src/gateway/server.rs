//! The gateway's own HTTP server: accepts connections, answers, shuts down gracefully.
//!
//! The two paths for questions are matched right here. A router would cost every question a dozen
//! allocations; all other requests go through it.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, Response};
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower_service::Service as _;

use super::anthropic_response::Anthropic;
use super::api_format::ApiFormat;
use super::openai_response::OpenAi;
use super::{COMPLETIONS, GatewayState, MESSAGES, handler};

/// How long a connection may take to send its next request head. Also applies to the first, so that
/// idle connections are closed.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(75);

/// Delay after a failed `accept`: the process may be out of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Shared by all connections.
struct Connections {
    state: Arc<GatewayState>,
    router: Router,
}

/// Serves until `end`, then finishes the requests in progress.
// Boxed, so that the future is compiled in this crate and not, with less optimisation, in the
// caller's.
pub(super) fn serve(
    listener: TcpListener,
    state: Arc<GatewayState>,
    router: Router,
    end: BoxFuture<'_, ()>,
) -> BoxFuture<'_, ()> {
    Box::pin(accept(listener, state, router, end))
}

async fn accept(
    listener: TcpListener,
    state: Arc<GatewayState>,
    router: Router,
    mut end: BoxFuture<'_, ()>,
) {
    let shared = Arc::new(Connections { state, router });
    let (ending, open) = watch::channel(());
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = &mut end => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(Arc::clone(&shared).serve(stream, open.clone()));
                }
                Err(error) => pause_after_accept_error(&error).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
    // No new connections; requests in progress are answered.
    drop((listener, ending));
    while connections.join_next().await.is_some() {}
}

/// Waits after a failed `accept`, unless the connection only broke before it was accepted: any other
/// error is a lack of resources, and passes.
pub async fn pause_after_accept_error(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::warn!(%error, "accepting a connection failed");
        tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
    }
}

impl Connections {
    /// Answers the requests of a connection, until either side closes it.
    async fn serve(self: Arc<Self>, stream: TcpStream, mut open: watch::Receiver<()>) {
        // Sends answers without delay; if this fails, they are only sent a little later.
        let _ = stream.set_nodelay(true);
        let answering = service_fn(|request| self.answer(request));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_READ_TIMEOUT)
            .serve_connection(TokioIo::new(stream), answering);
        let mut connection = pin!(connection);
        tokio::select! {
            biased;
            ended = connection.as_mut() => return log_end(ended),
            _ = open.changed() => connection.as_mut().graceful_shutdown(),
        }
        log_end(connection.await);
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let format: &'static dyn ApiFormat = match (request.method(), request.uri().path()) {
            (&Method::POST, COMPLETIONS) => &OpenAi,
            (&Method::POST, MESSAGES) => &Anthropic,
            _ => return Box::pin(self.router.clone().call(request)).await,
        };
        Ok(handler::handle(format, &self.state, request).await)
    }
}

/// Logged at debug level only: mostly the client closed the connection.
fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "connection closed");
    }
}
