//! The HTTP server: connection limit, timeouts on untrusted clients, TLS, graceful shutdown.

use std::net::SocketAddr;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use longshore_ai::gateway::pause_after_accept_error;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

use crate::app_state::ConnectionLimits;
use crate::connection_limiter::{ActiveRequest, ConnectionLimiter, ConnectionSlot};

/// Maximum size of a request's head.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Maximum number of headers.
const MAX_HEADERS: usize = 100;
/// How long a response may take to reach a client that has not sent its whole request.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long requests in flight may take after shutdown began.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// A certificate and its key.
#[derive(Clone)]
pub struct ServerCertificate(TlsAcceptor);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsConfigError {
    /// The file of the certificate cannot be read.
    #[error("cannot read the certificate")]
    Certificate(#[source] rustls::pki_types::pem::Error),
    /// The file of the key cannot be read.
    #[error("cannot read the certificate's key")]
    Key(#[source] rustls::pki_types::pem::Error),
    /// Certificate and key do not match, or are invalid.
    #[error("the certificate cannot be used")]
    Pair(#[from] rustls::Error),
}

impl ServerCertificate {
    /// Reads two PEM files.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsConfigError> {
        let chain = CertificateDer::pem_file_iter(certificate).map_err(TlsConfigError::Certificate)?;
        let chain = chain.collect::<Result<Vec<_>, _>>().map_err(TlsConfigError::Certificate)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(TlsConfigError::Key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

impl std::fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

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
    listener: TcpListener,
    tls: Option<ServerCertificate>,
    limits: ConnectionLimits,
    router: Router,
    end: BoxFuture<'_, ()>,
) -> BoxFuture<'_, ()> {
    Box::pin(accept(listener, tls, limits, router, end))
}

async fn accept(
    listener: TcpListener,
    tls: Option<ServerCertificate>,
    limits: ConnectionLimits,
    router: Router,
    mut end: BoxFuture<'_, ()>,
) {
    let mut limiter = ConnectionLimiter::new(limits.connections);
    let handler = Arc::new(ConnectionHandler { router, tls, limits });
    let (ending, open) = watch::channel(());
    let mut connections = JoinSet::new();
    // The accepted connection that waits for a slot.
    let mut pending: Option<(TcpStream, SocketAddr)> = None;
    loop {
        tokio::select! {
            () = &mut end => break,
            accepted = listener.accept(), if pending.is_none() => match accepted {
                Ok(accepted) => pending = Some(accepted),
                Err(error) => pause_after_accept_error(&error).await,
            },
            slot = limiter.acquire(), if pending.is_some() => {
                if let Some((stream, from)) = pending.take() {
                    let handler = Arc::clone(&handler);
                    connections.spawn(handler.handle(stream, from, open.clone(), slot));
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
        stream: TcpStream,
        from: SocketAddr,
        open: watch::Receiver<()>,
        slot: Arc<ConnectionSlot>,
    ) {
        // Send responses without delay; a failure only makes them slower.
        let _ = stream.set_nodelay(true);
        let Some(ServerCertificate(tls)) = &self.tls else {
            return self.serve_http(stream, from, open, slot).await;
        };
        let handshake = tokio::select! {
            handshake = tokio::time::timeout(self.limits.time, tls.accept(stream)) => handshake,
            () = slot.evicted() => return,
        };
        match handshake {
            Ok(Ok(stream)) => Box::pin(self.serve_http(stream, from, open, slot)).await,
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake timed out"),
        }
    }

    /// Serves the requests of a connection until either side closes it.
    async fn serve_http<S>(
        &self,
        stream: S,
        from: SocketAddr,
        mut open: watch::Receiver<()>,
        slot: Arc<ConnectionSlot>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let abort_read = Notify::new();
        let service = service_fn(|mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(from);
            if self.tls.is_some() {
                request.extensions_mut().insert(OverTls);
            }
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
                response.map(|response| response.map(|body| TrackedResponseBody { body, _active: active }))
            }
        });
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

/// A response's body: the request counts as active until it was sent completely.
struct TrackedResponseBody {
    body: Body,
    _active: ActiveRequest,
}

impl hyper::body::Body for TrackedResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
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
