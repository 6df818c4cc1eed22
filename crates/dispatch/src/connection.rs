//! Connects to a server by the addresses in its access file, one shortly after the other. A client on the
//! server's machine uses the local socket instead.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use secrecy::ExposeSecret;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use crate::access::{Access, AccessError};
use crate::wire::frame::{FrameReader, decode_json, encode_json};
use crate::wire::{Hello, MAX_FRAME, PROTOCOL_VERSION, PeerRole, Welcome};
use crate::{local_socket, tls};

/// Connect timeout per address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between the starts of the attempts, one per address, so that an address that does not answer
/// delays the next one little.
const CONNECT_STAGGER: Duration = Duration::from_millis(250);
/// The connection fails if sent data stays unacknowledged for this long. Without it, TCP would
/// retry for a quarter of an hour when a network drops packets silently.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

/// TLS over TCP, or the local socket.
type Stream = Either<TlsStream<TcpStream>, UnixStream>;

/// An authenticated connection.
#[derive(Debug)]
pub struct ServerConnection {
    /// Messages of the server.
    pub reader: FrameReader<ReadHalf<Stream>>,
    /// Messages to the server.
    pub writer: WriteHalf<Stream>,
    /// The address that was connected to; `None` over the local socket.
    pub address: Option<SocketAddr>,
}

/// Why no connection could be established.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The access file cannot be used.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// No address could be connected to.
    #[error("the server cannot be reached: {reasons}")]
    Unreachable {
        /// The error of each address.
        reasons: String,
        /// A peer answered with another certificate than the access file's, or rejected the secret.
        wrong_identity: bool,
    },
    /// The server speaks no common protocol version.
    #[error("the server rejected the connection: {0}")]
    Refused(String),
    /// TLS could not be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// Connects to the server that wrote `access`.
pub async fn connect(access: &Access, role: PeerRole) -> Result<ServerConnection, ConnectError> {
    if let (PeerRole::Client, Some(name)) = (role, &access.local_socket)
        && let Some(connection) = connect_locally(name, access).await
    {
        return connection;
    }
    let connector = TlsConnector::from(tls::client_config(&access.certificate)?);
    let (mut failures, mut wrong_identity) = (Vec::new(), false);
    let attempts = (0..).zip(&access.addresses).map(|(nth, address)| {
        let connector = &connector;
        async move {
            tokio::time::sleep(CONNECT_STAGGER * nth).await;
            let attempt = timeout(CONNECT_TIMEOUT, connect_to(connector, *address, access, role));
            (nth, *address, attempt.await)
        }
    });
    let mut attempts: FuturesUnordered<_> = attempts.collect();
    while let Some((nth, address, attempt)) = attempts.next().await {
        let reason = match attempt {
            Ok(Ok(connection)) => return connection,
            Ok(Err(error)) => {
                wrong_identity |= is_wrong_identity(&error);
                error.to_string()
            }
            Err(_) => format!("no answer within {CONNECT_TIMEOUT:?}"),
        };
        failures.push((nth, format!("{address}: {reason}")));
    }
    failures.sort_unstable();
    let failures: Vec<String> = failures.into_iter().map(|(_, failure)| failure).collect();
    Err(ConnectError::Unreachable { reasons: failures.join("; "), wrong_identity })
}

/// Returns `None` if the local socket cannot be reached, because the server is on another machine
/// or isolated from this process. The caller then tries the addresses.
async fn connect_locally(name: &str, access: &Access) -> Option<Result<ServerConnection, ConnectError>> {
    let attempt = timeout(CONNECT_TIMEOUT, async {
        let stream = Either::Right(local_socket::connect(name).await?);
        handshake(stream, access, PeerRole::Client).await
    });
    let connection = attempt.await.ok()?.ok()?;
    Some(connection.map(|(reader, writer)| ServerConnection { reader, writer, address: None }))
}

/// Whether the peer has another certificate ([`tls`] reports it) or another secret.
fn is_wrong_identity(error: &io::Error) -> bool {
    let inner = error.get_ref();
    let tls = inner.and_then(|inner| inner.downcast_ref());
    let secret: Option<&SecretRejected> = inner.and_then(|inner| inner.downcast_ref());
    matches!(tls, Some(rustls::Error::General(_))) || secret.is_some()
}

/// The server closed the connection after the hello.
#[derive(Debug, thiserror::Error)]
#[error("the server rejected the secret")]
struct SecretRejected;

#[cfg(target_os = "linux")]
fn set_user_timeout(stream: &TcpStream) -> io::Result<()> {
    let limit = u32::try_from(TCP_USER_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
    Ok(rustix::net::sockopt::set_tcp_user_timeout(stream, limit)?)
}

#[cfg(not(target_os = "linux"))]
fn set_user_timeout(_: &TcpStream) -> io::Result<()> {
    let _ = TCP_USER_TIMEOUT;
    Ok(())
}

async fn connect_to(
    connector: &TlsConnector,
    address: SocketAddr,
    access: &Access,
    role: PeerRole,
) -> io::Result<Result<ServerConnection, ConnectError>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    set_user_timeout(&stream)?;
    let stream = Either::Left(connector.connect(tls::server_name(), stream).await?);
    let established = handshake(stream, access, role).await?;
    Ok(established.map(|(reader, writer)| ServerConnection { reader, writer, address: Some(address) }))
}

/// Sends the secret and negotiates the protocol version.
async fn handshake(
    stream: Stream,
    access: &Access,
    role: PeerRole,
) -> io::Result<Result<(FrameReader<ReadHalf<Stream>>, WriteHalf<Stream>), ConnectError>> {
    let (read, mut writer) = tokio::io::split(stream);
    let secret = STANDARD.encode(access.secret.expose_secret());
    let mut bytes = Vec::new();
    encode_json(&Hello { oldest: PROTOCOL_VERSION, newest: PROTOCOL_VERSION, role, secret }, &mut bytes)?;
    writer.write_all(&bytes).await?;
    writer.flush().await?;
    let mut reader = FrameReader::new(read, MAX_FRAME);
    let welcome = match reader.next().await {
        Ok(Some(welcome)) => welcome,
        // The server sends nothing to a peer with a wrong secret.
        Ok(None) => return Err(io::Error::other(SecretRejected)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(io::Error::other(SecretRejected));
        }
        Err(error) => return Err(error),
    };
    Ok(match decode_json(&welcome)? {
        Welcome::Version(_) => Ok((reader, writer)),
        Welcome::Refused(why) => Err(ConnectError::Refused(why)),
    })
}
