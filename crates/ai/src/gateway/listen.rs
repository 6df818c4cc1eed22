//! Connections of the gateway's own: accepted, answered, and ended in good order.
//!
//! The two paths on which questions come are told apart right here. A router beside that costs every
//! question a dozen allocations; whatever else is asked goes through it.

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

use super::anthropic_out::Anthropic;
use super::openai_out::OpenAi;
use super::wire::Wire;
use super::{COMPLETIONS, House, MESSAGES, serve};

/// How long a connection may take until it has said what it wants; also the first time, so that nobody
/// holds one for nothing.
const SILENCE: Duration = Duration::from_secs(75);

/// How long nobody is let in when that failed: there may be no room for more.
const PAUSE: Duration = Duration::from_millis(100);

/// What every connection shares.
struct Reception {
    house: Arc<House>,
    router: Router,
}

/// Serves until `end`, and then what is under way.
// Boxed, so that it is compiled in this crate and not, less carefully, in the caller's.
pub(super) fn listen(
    listener: TcpListener,
    house: Arc<House>,
    router: Router,
    end: BoxFuture<'_, ()>,
) -> BoxFuture<'_, ()> {
    Box::pin(accept(listener, house, router, end))
}

async fn accept(
    listener: TcpListener,
    house: Arc<House>,
    router: Router,
    mut end: BoxFuture<'_, ()>,
) {
    let reception = Arc::new(Reception { house, router });
    let (ending, open) = watch::channel(());
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = &mut end => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(Arc::clone(&reception).hold(stream, open.clone()));
                }
                Err(error) => rest(&error).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
    // Nobody new is let in; whoever waits for an answer gets it.
    drop((listener, ending));
    while connections.join_next().await.is_some() {}
}

/// A connection that broke before it was taken is nobody's concern. Anything else is a lack of
/// something, and passes.
async fn rest(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::warn!(%error, "a connection could not be accepted");
        tokio::time::sleep(PAUSE).await;
    }
}

impl Reception {
    /// Answers what comes over a connection, until either side ends it.
    async fn hold(self: Arc<Self>, stream: TcpStream, mut open: watch::Receiver<()>) {
        // Answers go out as they are; without it they only go a little later.
        let _ = stream.set_nodelay(true);
        let answering = service_fn(|request| self.answer(request));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(SILENCE)
            .serve_connection(TokioIo::new(stream), answering);
        let mut connection = pin!(connection);
        tokio::select! {
            biased;
            ended = connection.as_mut() => return left(ended),
            _ = open.changed() => connection.as_mut().graceful_shutdown(),
        }
        left(connection.await);
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let wire: &'static dyn Wire = match (request.method(), request.uri().path()) {
            (&Method::POST, COMPLETIONS) => &OpenAi,
            (&Method::POST, MESSAGES) => &Anthropic,
            _ => return Box::pin(self.router.clone().call(request)).await,
        };
        Ok(serve::serve(wire, &self.house, request).await)
    }
}

/// How a connection ended is seldom of interest: mostly somebody hung up.
fn left(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}
