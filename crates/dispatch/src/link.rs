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
use crate::wire::frame::{Frames, put_json, take_json};
use crate::wire::{Hello, LIMIT, Role, VERSION, Welcome};
use crate::{beside, secure};

/// How long one address may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// A server whose system does not confirm what we say for so long is gone. A network that swallows
/// everything tells nobody, and TCP by itself would hope for a quarter of an hour.
const SILENCE: Duration = Duration::from_secs(10);

/// By network, or past it.
type Stream = Either<TlsStream<TcpStream>, UnixStream>;

/// A connection on which both sides know each other.
#[derive(Debug)]
pub struct Link {
    /// What the server says.
    pub reader: Frames<ReadHalf<Stream>>,
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
    #[error("the server cannot be reached: {words}")]
    Unreachable {
        /// What went wrong at each.
        words: String,
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
pub async fn connect(access: &Access, role: Role) -> Result<Link, LinkError> {
    if let (Role::Client, Some(name)) = (role, &access.beside)
        && let Some(link) = connect_beside(name, access).await
    {
        return link;
    }
    let tls = TlsConnector::from(secure::client(&access.certificate)?);
    let (mut failures, mut stranger) = (Vec::new(), false);
    for address in &access.addresses {
        match timeout(PATIENCE, connect_to(&tls, *address, access, role)).await {
            Ok(Ok(link)) => return link,
            Ok(Err(error)) => {
                stranger |= is_of_stranger(&error);
                failures.push(format!("{address}: {error}"));
            }
            Err(_) => failures.push(format!("{address}: no answer within {PATIENCE:?}")),
        }
    }
    Err(LinkError::Unreachable { words: failures.join("; "), stranger })
}

/// None if the server is on another machine, or shut off from us here: there are its addresses then.
async fn connect_beside(name: &str, access: &Access) -> Option<Result<Link, LinkError>> {
    let said = timeout(PATIENCE, async {
        let stream = Either::Right(beside::connect(name).await?);
        introduce(stream, access, Role::Client).await
    });
    let link = said.await.ok()?.ok()?;
    Some(link.map(|(reader, writer)| Link { reader, writer, address: None }))
}

/// Whether somebody answered who has another certificate (`secure` says so), or another secret.
fn is_of_stranger(error: &io::Error) -> bool {
    let inner = error.get_ref();
    let tls = inner.and_then(|inner| inner.downcast_ref());
    let secret: Option<&UnknownSecret> = inner.and_then(|inner| inner.downcast_ref());
    matches!(tls, Some(rustls::Error::General(_))) || secret.is_some()
}

/// The server ended the conversation at our first word.
#[derive(Debug, thiserror::Error)]
#[error("it does not know our secret")]
struct UnknownSecret;

#[cfg(target_os = "linux")]
fn notice_silence(stream: &TcpStream) -> io::Result<()> {
    let limit = u32::try_from(SILENCE.as_millis()).unwrap_or(u32::MAX);
    Ok(rustix::net::sockopt::set_tcp_user_timeout(stream, limit)?)
}

#[cfg(not(target_os = "linux"))]
fn notice_silence(_: &TcpStream) -> io::Result<()> {
    let _ = SILENCE;
    Ok(())
}

async fn connect_to(
    tls: &TlsConnector,
    address: SocketAddr,
    access: &Access,
    role: Role,
) -> io::Result<Result<Link, LinkError>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    notice_silence(&stream)?;
    let stream = Either::Left(tls.connect(secure::server_name(), stream).await?);
    let introduced = introduce(stream, access, role).await?;
    Ok(introduced.map(|(reader, writer)| Link { reader, writer, address: Some(address) }))
}

/// Proves that we may speak, and hears whether we understand each other.
async fn introduce(
    stream: Stream,
    access: &Access,
    role: Role,
) -> io::Result<Result<(Frames<ReadHalf<Stream>>, WriteHalf<Stream>), LinkError>> {
    let (read, mut writer) = tokio::io::split(stream);
    let secret = STANDARD.encode(access.secret.expose_secret());
    let mut bytes = Vec::new();
    put_json(&Hello { oldest: VERSION, newest: VERSION, role, secret }, &mut bytes)?;
    writer.write_all(&bytes).await?;
    writer.flush().await?;
    let mut reader = Frames::new(read, LIMIT);
    let welcome = match reader.next().await {
        Ok(Some(welcome)) => welcome,
        // It says nothing to those who do not know its secret.
        Ok(None) => return Err(io::Error::other(UnknownSecret)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(io::Error::other(UnknownSecret));
        }
        Err(error) => return Err(error),
    };
    Ok(match take_json(&welcome)? {
        Welcome::Version(_) => Ok((reader, writer)),
        Welcome::Refused(why) => Err(LinkError::Refused(why)),
    })
}
