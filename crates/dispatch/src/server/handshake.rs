//! Accepts connections and authenticates peers.
//!
//! A peer without the secret of its role gets no reply: its connection is closed.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::SecretSlice;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::state::{ServerState, secrets_match};
use crate::local_socket;
use crate::wire::frame::{FrameReader, decode_json, encode_json};
use crate::wire::{Hello, MAX_FRAME, MAX_UNAUTHENTICATED_FRAME, PeerRole, Welcome, negotiate_version};

/// Timeout of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent handshakes.
const MAX_PENDING: usize = 256;

type Stream = Either<TlsStream<TcpStream>, UnixStream>;
pub(super) type Reader = FrameReader<ReadHalf<Stream>>;
pub(super) type Writer = WriteHalf<Stream>;

/// Listens on the network or on the local socket.
pub(super) enum Listener {
    Tcp(TcpListener),
    Local(UnixListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Either<TcpStream, UnixStream>> {
        match self {
            Self::Tcp(listener) => Ok(Either::Left(listener.accept().await?.0)),
            Self::Local(listener) => Ok(Either::Right(listener.accept().await?.0)),
        }
    }
}

/// A connection to a peer that has presented the secret of its role.
pub(super) struct AuthenticatedPeer {
    pub(super) role: PeerRole,
    pub(super) reader: Reader,
    pub(super) writer: Writer,
}

/// Accepts and authenticates connections.
#[derive(Clone)]
pub(super) struct Acceptor {
    tls: TlsAcceptor,
    client_secret: SecretSlice<u8>,
    worker_secret: SecretSlice<u8>,
    pending: Arc<PendingHandshakes>,
}

/// Handshakes in progress, oldest first.
#[derive(Default)]
struct PendingHandshakes(Mutex<VecDeque<oneshot::Sender<Infallible>>>);

impl PendingHandshakes {
    /// Registers a handshake. At the limit, the oldest one is evicted: a legitimate peer sends its
    /// secret at once, so idle connections cannot lock others out. The returned receiver resolves
    /// when this handshake is evicted.
    fn admit(&self) -> oneshot::Receiver<Infallible> {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.retain(|handshake| !handshake.is_closed());
        while pending.len() >= MAX_PENDING {
            pending.pop_front();
        }
        let (handle, evicted) = oneshot::channel();
        pending.push_back(handle);
        evicted
    }
}

impl Acceptor {
    pub(super) fn new(tls: TlsAcceptor, state: &ServerState) -> Self {
        let [client_secret, worker_secret] =
            [PeerRole::Client, PeerRole::Worker].map(|role| state.secret(role));
        Self { tls, client_secret, worker_secret, pending: Arc::default() }
    }

    /// Accepts connections for ever, and passes each authenticated peer to `on_peer`.
    pub(super) async fn accept_loop<M, F>(self, listener: Listener, on_peer: M)
    where
        M: Fn(AuthenticatedPeer) -> F + Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok(stream) => {
                        let (acceptor, on_peer) = (self.clone(), on_peer.clone());
                        connections.spawn(async move {
                            if let Some(peer) = acceptor.authenticate(stream).await {
                                on_peer(peer).await;
                            }
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "accepting a connection failed");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
            }
        }
    }

    async fn authenticate(self, stream: Either<TcpStream, UnixStream>) -> Option<AuthenticatedPeer> {
        let evicted = self.pending.admit();
        let peer = match &stream {
            Either::Left(stream) => stream.peer_addr().ok(),
            Either::Right(_) => None,
        };
        let outcome = tokio::select! {
            outcome = timeout(HANDSHAKE_TIMEOUT, self.handshake(stream)) => outcome,
            _ = evicted => {
                tracing::debug!(?peer, "handshake evicted: too many are pending");
                return None;
            }
        };
        match outcome {
            Ok(Ok(peer)) => Some(peer),
            Ok(Err(error)) => {
                tracing::debug!(%error, ?peer, "handshake failed");
                None
            }
            Err(_) => {
                tracing::debug!(?peer, "handshake timed out");
                None
            }
        }
    }

    async fn handshake(&self, stream: Either<TcpStream, UnixStream>) -> io::Result<AuthenticatedPeer> {
        let stream = match stream {
            Either::Left(stream) => {
                stream.set_nodelay(true)?;
                Either::Left(self.tls.accept(stream).await?)
            }
            Either::Right(stream) => {
                local_socket::require_same_user(&stream)?;
                Either::Right(stream)
            }
        };
        let (read, mut writer) = tokio::io::split(stream);
        let mut reader = FrameReader::new(read, MAX_UNAUTHENTICATED_FRAME);
        let hello = reader.next().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let hello: Hello = decode_json(&hello)?;
        let presented = STANDARD.decode(&hello.secret).map_err(io::Error::other)?;
        let expected = match hello.role {
            PeerRole::Client => &self.client_secret,
            PeerRole::Worker => &self.worker_secret,
        };
        if !secrets_match(expected, &presented) {
            return Err(io::Error::other("wrong secret"));
        }
        let version = negotiate_version(hello.oldest, hello.newest);
        let welcome = match &version {
            Ok(version) => Welcome::Version(*version),
            Err(reason) => Welcome::Refused(reason.clone()),
        };
        let mut bytes = Vec::new();
        encode_json(&welcome, &mut bytes)?;
        writer.write_all(&bytes).await?;
        writer.flush().await?;
        if let Err(reason) = version {
            writer.shutdown().await?;
            return Err(io::Error::other(reason));
        }
        reader.set_limit(MAX_FRAME);
        Ok(AuthenticatedPeer { role: hello.role, reader, writer })
    }
}
