//! Connections: so many at once, with limits on how long a stranger may take to say what they want,
//! with or without TLS, and ended in good order.

use std::io;
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
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

use crate::house::Limits;
use crate::seats::{Busy, Seat, Seats};

/// Longest head of a request.
const HEAD: usize = 64 * 1024;
/// Most headers of a request.
const HEADERS: usize = 100;
/// How long nobody is let in when that failed: there may be no room for more.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the answer may take on its way to somebody who has not said everything yet.
const LINGER: Duration = Duration::from_secs(1);
/// How long those who are being answered when we end may still take.
const GRACE: Duration = Duration::from_secs(10);

/// A certificate and its key.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file of the certificate cannot be read.
    #[error("the certificate cannot be read")]
    Certificate(#[source] rustls::pki_types::pem::Error),
    /// The file of the key cannot be read.
    #[error("the certificate's key cannot be read")]
    Key(#[source] rustls::pki_types::pem::Error),
    /// They do not belong together, or are of no use.
    #[error("the certificate cannot be used")]
    Pair(#[from] rustls::Error),
}

impl Tls {
    /// From two files in PEM.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let chain = CertificateDer::pem_file_iter(certificate).map_err(TlsError::Certificate)?;
        let chain = chain.collect::<Result<Vec<_>, _>>().map_err(TlsError::Certificate)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(TlsError::Key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

/// Among a request's extensions: it came over TLS.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OverTls;

/// What every connection shares.
struct Reception {
    router: Router,
    tls: Option<Tls>,
    limits: Limits,
}

/// Serves until `end`, and then what is under way.
// Boxed, so that it is compiled in this crate and not, less carefully, in the caller's.
pub(crate) fn listen(
    listener: TcpListener,
    tls: Option<Tls>,
    limits: Limits,
    router: Router,
    end: BoxFuture<'_, ()>,
) -> BoxFuture<'_, ()> {
    Box::pin(accept(listener, tls, limits, router, end))
}

async fn accept(
    listener: TcpListener,
    tls: Option<Tls>,
    limits: Limits,
    router: Router,
    mut end: BoxFuture<'_, ()>,
) {
    let mut seats = Seats::new(limits.connections);
    let reception = Arc::new(Reception { router, tls, limits });
    let (ending, open) = watch::channel(());
    let mut connections = JoinSet::new();
    // Whoever is at the door while all places are taken.
    let mut guest: Option<(TcpStream, SocketAddr)> = None;
    loop {
        tokio::select! {
            () = &mut end => break,
            accepted = listener.accept(), if guest.is_none() => match accepted {
                Ok(accepted) => guest = Some(accepted),
                Err(error) => rest(&error).await,
            },
            seat = seats.take(), if guest.is_some() => {
                if let Some((stream, from)) = guest.take() {
                    let reception = Arc::clone(&reception);
                    connections.spawn(reception.hold(stream, from, open.clone(), seat));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
    // Nobody new is let in; whoever waits for an answer gets it, if it does not take for ever.
    drop((listener, ending));
    let leaving = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, leaving).await.is_err() {
        tracing::warn!("some connections did not end in time");
    }
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
    async fn hold(
        self: Arc<Self>,
        stream: TcpStream,
        from: SocketAddr,
        open: watch::Receiver<()>,
        seat: Arc<Seat>,
    ) {
        // Answers go out as they are; without it they only go a little later.
        let _ = stream.set_nodelay(true);
        let Some(Tls(tls)) = &self.tls else { return self.answer(stream, from, open, seat).await };
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(self.limits.time, tls.accept(stream)) => shaken,
            () = seat.unwanted() => return,
        };
        match shaken {
            Ok(Ok(stream)) => Box::pin(self.answer(stream, from, open, seat)).await,
            Ok(Err(error)) => tracing::debug!(%error, "no TLS"),
            Err(_) => tracing::debug!("no TLS in time"),
        }
    }

    /// Answers what comes over a connection, until either side ends it.
    async fn answer<S>(
        &self,
        stream: S,
        from: SocketAddr,
        mut open: watch::Receiver<()>,
        seat: Arc<Seat>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let hang_up = Notify::new();
        let answering = service_fn(|mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(from);
            if self.tls.is_some() {
                request.extensions_mut().insert(OverTls);
            }
            let is_heard = Arc::new(AtomicBool::new(request.body().is_end_stream()));
            let heard = Arc::clone(&is_heard);
            let request = request.map(|body| Body::new(Heard { body, is_heard: heard }));
            let responding = self.router.clone().call(request);
            let (hang_up, busy) = (&hang_up, seat.busy());
            async move {
                let response = responding.await;
                // The rest of what they say is of no interest, and may never come.
                if !is_heard.load(Ordering::Relaxed) {
                    hang_up.notify_one();
                }
                response.map(|response| response.map(|body| Told { body, _busy: busy }))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.time)
            .max_buf_size(HEAD)
            .max_headers(HEADERS)
            .serve_connection(TokioIo::new(stream), answering);
        let mut connection = pin!(connection);
        tokio::select! {
            biased;
            ended = connection.as_mut() => left(ended),
            _ = open.changed() => {
                connection.as_mut().graceful_shutdown();
                left(connection.await);
            }
            // Nobody waits for an answer that has not begun to speak.
            () = seat.unwanted() => if seat.was_busy() {
                connection.as_mut().graceful_shutdown();
                // A request may have come since, or an answer is on its way to somebody slow.
                match seat.is_busy() {
                    true => left(connection.await),
                    false => drop(tokio::time::timeout(GRACE, connection).await),
                }
            },
            () = hang_up.notified() => {
                connection.as_mut().graceful_shutdown();
                let _ = tokio::time::timeout(LINGER, connection).await;
            }
        }
    }
}

/// A request's body, and whether all of it was heard.
struct Heard {
    body: Incoming,
    is_heard: Arc<AtomicBool>,
}

impl hyper::body::Body for Heard {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            self.is_heard.store(true, Ordering::Relaxed);
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

/// An answer's body; whoever it is for is being answered until all of it was told.
struct Told {
    body: Body,
    _busy: Busy,
}

impl hyper::body::Body for Told {
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

/// How a connection ended is seldom of interest: mostly somebody hung up.
fn left(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}
