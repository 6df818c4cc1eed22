//! Connecting to a server: every address that its access file names, until one works. Clients on the
//! server's own machine need none of them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
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

/// How long one address may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A server whose system does not confirm what we say for so long is gone. A network that swallows
/// everything tells nobody, and TCP by itself would hope for a quarter of an hour.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

/// By network, or past it.
type Stream = Either<TlsStream<TcpStream>, UnixStream>;

/// A connection on which both sides know each other.
#[derive(Debug)]
pub struct ServerConnection {
    /// What the server says.
    pub reader: FrameReader<ReadHalf<Stream>>,
    /// Where our words go.
    pub writer: WriteHalf<Stream>,
    /// The address that worked. None on the server's own machine.
    pub address: Option<SocketAddr>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The access file is of no use.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// No address worked.
    #[error("the server cannot be reached: {reasons}")]
    Unreachable {
        /// What went wrong at each.
        reasons: String,
        /// Somebody answered who is not the server that left the file, or does not know us.
        stranger: bool,
    },
    /// The server speaks another version.
    #[error("the server refuses us: {0}")]
    Refused(String),
    /// TLS could not be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// Connects to the server that left `access`.
pub async fn connect(access: &Access, role: PeerRole) -> Result<ServerConnection, LinkError> {
    if let (PeerRole::Client, Some(name)) = (role, &access.local_socket)
        && let Some(connection) = connect_locally(name, access).await
    {
        return connection;
    }
    let connector = TlsConnector::from(tls::client_config(&access.certificate)?);
    let (mut failures, mut stranger) = (Vec::new(), false);
    for address in &access.addresses {
        match timeout(CONNECT_TIMEOUT, connect_to(&connector, *address, access, role)).await {
            Ok(Ok(connection)) => return connection,
            Ok(Err(error)) => {
                stranger |= is_wrong_identity(&error);
                failures.push(format!("{address}: {error}"));
            }
            Err(_) => failures.push(format!("{address}: no answer within {CONNECT_TIMEOUT:?}")),
        }
    }
    Err(LinkError::Unreachable { reasons: failures.join("; "), stranger })
}

/// None if the server is on another machine, or shut off from us here: there are its addresses then.
async fn connect_locally(
    name: &str,
    access: &Access,
) -> Option<Result<ServerConnection, LinkError>> {
    let attempt = timeout(CONNECT_TIMEOUT, async {
        let stream = Either::Right(local_socket::connect(name).await?);
        handshake(stream, access, PeerRole::Client).await
    });
    let connection = attempt.await.ok()?.ok()?;
    Some(connection.map(|(reader, writer)| ServerConnection { reader, writer, address: None }))
}

/// Whether somebody answered who has another certificate (`secure` says so), or another secret.
fn is_wrong_identity(error: &io::Error) -> bool {
    let inner = error.get_ref();
    let tls = inner.and_then(|inner| inner.downcast_ref());
    let secret: Option<&SecretRejected> = inner.and_then(|inner| inner.downcast_ref());
    matches!(tls, Some(rustls::Error::General(_))) || secret.is_some()
}

/// The server ended the conversation at our first word.
#[derive(Debug, thiserror::Error)]
#[error("it does not know our secret")]
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
) -> io::Result<Result<ServerConnection, LinkError>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    set_user_timeout(&stream)?;
    let stream = Either::Left(connector.connect(tls::server_name(), stream).await?);
    let established = handshake(stream, access, role).await?;
    Ok(established.map(|(reader, writer)| ServerConnection {
        reader,
        writer,
        address: Some(address),
    }))
}

/// Proves that we may speak, and hears whether we understand each other.
async fn handshake(
    stream: Stream,
    access: &Access,
    role: PeerRole,
) -> io::Result<Result<(FrameReader<ReadHalf<Stream>>, WriteHalf<Stream>), LinkError>> {
    let (read, mut writer) = tokio::io::split(stream);
    let secret = STANDARD.encode(access.secret.expose_secret());
    let mut bytes = Vec::new();
    encode_json(
        &Hello { oldest: PROTOCOL_VERSION, newest: PROTOCOL_VERSION, role, secret },
        &mut bytes,
    )?;
    writer.write_all(&bytes).await?;
    writer.flush().await?;
    let mut reader = FrameReader::new(read, MAX_FRAME);
    let welcome = match reader.next().await {
        Ok(Some(welcome)) => welcome,
        // It says nothing to those who do not know its secret.
        Ok(None) => return Err(io::Error::other(SecretRejected)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(io::Error::other(SecretRejected));
        }
        Err(error) => return Err(error),
    };
    Ok(match decode_json(&welcome)? {
        Welcome::Version(_) => Ok((reader, writer)),
        Welcome::Refused(why) => Err(LinkError::Refused(why)),
    })
}
