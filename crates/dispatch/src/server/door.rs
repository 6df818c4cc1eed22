//! The door: who comes in, and what they are asked first.
//!
//! Whoever does not know the secret hears nothing but the end of the connection.

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

use super::state::same;
use crate::beside;
use crate::wire::frame::{Frames, put_json, take_json};
use crate::wire::{Hello, LIMIT, Role, STRANGER_LIMIT, Welcome, common_version};

/// How long somebody may take to introduce themselves.
const INTRODUCTION: Duration = Duration::from_secs(10);
/// How many may be about it at once.
const STRANGERS: usize = 256;

type Stream = Either<TlsStream<TcpStream>, UnixStream>;
pub(super) type Reader = Frames<ReadHalf<Stream>>;
pub(super) type Writer = WriteHalf<Stream>;

/// Where people come from: the network, or this machine.
pub(super) enum Listener {
    Network(TcpListener),
    Beside(UnixListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Either<TcpStream, UnixStream>> {
        match self {
            Self::Network(listener) => Ok(Either::Left(listener.accept().await?.0)),
            Self::Beside(listener) => Ok(Either::Right(listener.accept().await?.0)),
        }
    }
}

/// Somebody who knows the secret.
pub(super) struct Guest {
    pub(super) role: Role,
    pub(super) reader: Reader,
    pub(super) writer: Writer,
}

/// What is needed to let somebody in.
#[derive(Clone)]
pub(super) struct Door {
    tls: TlsAcceptor,
    secret: SecretSlice<u8>,
    strangers: Arc<Strangers>,
}

/// Those who have not introduced themselves yet, the first to come first.
#[derive(Default)]
struct Strangers(Mutex<VecDeque<oneshot::Sender<Infallible>>>);

impl Strangers {
    /// One more. Whoever has been about it longest goes if there are too many: who knows the secret
    /// says so at once, so a crowd that says nothing keeps nobody out. Ends when it has to go.
    fn enter(&self) -> oneshot::Receiver<Infallible> {
        let mut strangers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        strangers.retain(|stranger| !stranger.is_closed());
        while strangers.len() >= STRANGERS {
            strangers.pop_front();
        }
        let (stays, goes) = oneshot::channel();
        strangers.push_back(stays);
        goes
    }
}

impl Door {
    pub(super) fn new(tls: TlsAcceptor, secret: SecretSlice<u8>) -> Self {
        Self { tls, secret, strangers: Arc::default() }
    }

    /// Lets people in for ever; `meet` is what happens with each.
    pub(super) async fn open<M, F>(self, listener: Listener, meet: M)
    where
        M: Fn(Guest) -> F + Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let mut inside = JoinSet::new();
        loop {
            tokio::select! {
                came = listener.accept() => match came {
                    Ok(stream) => {
                        let (door, meet) = (self.clone(), meet.clone());
                        inside.spawn(async move {
                            if let Some(guest) = door.let_in(stream).await {
                                meet(guest).await;
                            }
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "nobody can be let in at the moment");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(_) = inside.join_next(), if !inside.is_empty() => {}
            }
        }
    }

    async fn let_in(self, stream: Either<TcpStream, UnixStream>) -> Option<Guest> {
        let goes = self.strangers.enter();
        let peer = match &stream {
            Either::Left(stream) => stream.peer_addr().ok(),
            Either::Right(_) => None,
        };
        let introduced = tokio::select! {
            introduced = timeout(INTRODUCTION, self.introduce(stream)) => introduced,
            _ = goes => {
                tracing::debug!(?peer, "somebody had to go before they introduced themselves");
                return None;
            }
        };
        match introduced {
            Ok(Ok(guest)) => Some(guest),
            Ok(Err(error)) => {
                tracing::debug!(%error, ?peer, "somebody was not let in");
                None
            }
            Err(_) => {
                tracing::debug!(?peer, "somebody took too long to introduce themselves");
                None
            }
        }
    }

    async fn introduce(&self, stream: Either<TcpStream, UnixStream>) -> io::Result<Guest> {
        let stream = match stream {
            Either::Left(stream) => {
                stream.set_nodelay(true)?;
                Either::Left(self.tls.accept(stream).await?)
            }
            Either::Right(stream) => {
                beside::demand_same_user(&stream)?;
                Either::Right(stream)
            }
        };
        let (read, mut writer) = tokio::io::split(stream);
        let mut reader = Frames::new(read, STRANGER_LIMIT);
        let hello = reader.next().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let hello: Hello = take_json(&hello)?;
        let given = STANDARD.decode(&hello.secret).map_err(io::Error::other)?;
        if !same(&self.secret, &given) {
            return Err(io::Error::other("a wrong secret"));
        }
        let version = common_version(hello.oldest, hello.newest);
        let welcome = match &version {
            Ok(version) => Welcome::Version(*version),
            Err(why) => Welcome::Refused(why.clone()),
        };
        let mut bytes = Vec::new();
        put_json(&welcome, &mut bytes)?;
        writer.write_all(&bytes).await?;
        writer.flush().await?;
        if let Err(why) = version {
            writer.shutdown().await?;
            return Err(io::Error::other(why));
        }
        reader.set_limit(LIMIT);
        Ok(Guest { role: hello.role, reader, writer })
    }
}
