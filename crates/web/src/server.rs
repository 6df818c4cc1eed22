//! The HTTP server: connection limit, timeouts on untrusted clients, TLS, graceful shutdown.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Extensions;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use longshore_ai::gateway::pause_after_accept_error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tower_service::Service as _;

use crate::app_state::ConnectionLimits;
use crate::connection_limiter::{ConnectionLimiter, ConnectionSlot};
use crate::guarded_body::GuardedBody;
use crate::tls::ServerCertificate;
use crate::write_timeout::WriteTimeout;

/// Maximum size of a request's head.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Maximum number of headers.
const MAX_HEADERS: usize = 100;
/// How long a response may take to reach a client that has not sent its whole request.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long requests in flight may take after shutdown began.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// Where the server listens.
#[derive(Debug)]
pub enum WebListener {
    /// On a network address.
    Tcp(TcpListener),
    /// On a socket in the file system, without TLS.
    Unix(UnixListener),
}

impl From<TcpListener> for WebListener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

/// An accepted connection.
enum Connection {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl Connection {
    /// The client's address; over a Unix socket it is this machine's.
    fn address(&self) -> IpAddr {
        match self {
            Self::Tcp(_, from) => from.ip(),
            Self::Unix(_) => Ipv4Addr::LOCALHOST.into(),
        }
    }
}

impl WebListener {
    async fn accept(&self) -> std::io::Result<Connection> {
        match self {
            Self::Tcp(listener) => {
                listener.accept().await.map(|(stream, from)| Connection::Tcp(stream, from))
            }
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| Connection::Unix(stream)),
        }
    }
}

/// Request extension: the user that opened the connection to the Unix socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerUser(pub(crate) u32);

/// Request extension: the request came over TLS.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OverTls;

/// Shared by all connections.
struct ConnectionHandler {
    router: Router,
    tls: Option<ServerCertificate>,
    limits: ConnectionLimits,
}

/// Serves until `end` completes, then finishes requests in flight.
// Boxed, so that the future is compiled in this crate and not, with less optimisation, in the caller's.
pub(crate) fn serve(
    listener: WebListener,
    tls: Option<ServerCertificate>,
    limits: ConnectionLimits,
    limiter: ConnectionLimiter,
    router: Router,
    end: BoxFuture<'_, ()>,
) -> BoxFuture<'_, ()> {
    Box::pin(accept(listener, tls, limits, limiter, router, end))
}

async fn accept(
    listener: WebListener,
    tls: Option<ServerCertificate>,
    limits: ConnectionLimits,
    mut limiter: ConnectionLimiter,
    router: Router,
    mut end: BoxFuture<'_, ()>,
) {
    let handler = Arc::new(ConnectionHandler { router, tls, limits });
    let (ending, open) = watch::channel(());
    let mut connections = JoinSet::new();
    // The accepted connection that waits for a slot.
    let mut pending: Option<Connection> = None;
    loop {
        tokio::select! {
            () = &mut end => break,
            accepted = listener.accept(), if pending.is_none() => match accepted {
                Ok(connection) if !limiter.has_room_for(connection.address()) => {}
                Ok(accepted) => pending = Some(accepted),
                Err(error) => pause_after_accept_error(&error).await,
            },
            permit = limiter.acquire(), if pending.is_some() => {
                if let Some(connection) = pending.take() {
                    let (handler, slot) = (Arc::clone(&handler), limiter.open(permit, connection.address()));
                    connections.spawn(handler.handle(connection, open.clone(), slot));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
    // Accept no more connections, and let requests in flight finish within the grace period.
    drop((listener, ending));
    let draining = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(SHUTDOWN_GRACE, draining).await.is_err() {
        tracing::warn!("some connections did not end within the grace period");
    }
}

impl ConnectionHandler {
    async fn handle(
        self: Arc<Self>,
        connection: Connection,
        open: watch::Receiver<()>,
        slot: Arc<ConnectionSlot>,
    ) {
        let mut peer = Extensions::new();
        let stream = match connection {
            Connection::Unix(stream) => {
                let Ok(user) = stream.peer_cred() else { return };
                peer.insert(PeerUser(user.uid()));
                return Box::pin(self.serve_http(stream, peer, open, slot)).await;
            }
            Connection::Tcp(stream, from) => {
                peer.insert(from);
                stream
            }
        };
        // Send responses without delay; a failure only makes them slower.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else {
            return self.serve_http(stream, peer, open, slot).await;
        };
        peer.insert(OverTls);
        let handshake = tokio::select! {
            handshake = tokio::time::timeout(self.limits.time, tls.acceptor().accept(stream)) => handshake,
            () = slot.evicted() => return,
        };
        match handshake {
            Ok(Ok(stream)) => Box::pin(self.serve_http(stream, peer, open, slot)).await,
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake timed out"),
        }
    }

    /// Serves the requests of a connection until either side closes it. Each gets the extensions of `peer`.
    async fn serve_http<S>(
        &self,
        stream: S,
        peer: Extensions,
        mut open: watch::Receiver<()>,
        slot: Arc<ConnectionSlot>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let abort_read = Notify::new();
        let service = service_fn(|mut request: hyper::Request<Incoming>| {
            request.extensions_mut().extend(peer.clone());
            let is_complete = Arc::new(AtomicBool::new(request.body().is_end_stream()));
            let completed = Arc::clone(&is_complete);
            let request = request.map(|body| Body::new(TrackedRequestBody { body, is_complete: completed }));
            let responding = self.router.clone().call(request);
            let (abort_read, active) = (&abort_read, slot.begin_request());
            async move {
                let response = responding.await;
                // The rest of the request's body is not needed, and may never come.
                if !is_complete.load(Ordering::Relaxed) {
                    abort_read.notify_one();
                }
                response.map(|response| response.map(|body| GuardedBody::new(body, Arc::new(active))))
            }
        });
        let stream = WriteTimeout::new(stream, self.limits.time);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.time)
            .max_buf_size(MAX_HEAD_BYTES)
            .max_headers(MAX_HEADERS)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        tokio::select! {
            biased;
            ended = connection.as_mut() => log_end(ended),
            _ = open.changed() => {
                connection.as_mut().graceful_shutdown();
                log_end(connection.await);
            }
            // A connection without any request so far is closed at once.
            () = slot.evicted() => if slot.has_served() {
                connection.as_mut().graceful_shutdown();
                // A request may have arrived since, or a response is still being sent to a slow client.
                match slot.is_active() {
                    true => log_end(connection.await),
                    false => drop(tokio::time::timeout(SHUTDOWN_GRACE, connection).await),
                }
            },
            () = abort_read.notified() => {
                connection.as_mut().graceful_shutdown();
                let _ = tokio::time::timeout(LINGER_TIMEOUT, connection).await;
            }
        }
    }
}

/// A request's body that records when it was read completely.
struct TrackedRequestBody {
    body: Incoming,
    is_complete: Arc<AtomicBool>,
}

impl hyper::body::Body for TrackedRequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            self.is_complete.store(true, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Logs the end of a connection for debugging only: usually the client closed it.
fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended with an error");
    }
}
