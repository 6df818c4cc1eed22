//! Connecting to a server: every address that its access file names, until one works.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::ExposeSecret;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::access::{Access, AccessError};
use crate::secure;
use crate::wire::frame::{Frames, put_json, take_json};
use crate::wire::{Hello, LIMIT, Role, VERSION, Welcome};

/// How long one address may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// A server whose system does not confirm what we say for so long is gone. A network that swallows
/// everything tells nobody, and TCP by itself would hope for a quarter of an hour.
const SILENCE: Duration = Duration::from_secs(10);

/// A connection on which both sides know each other.
#[derive(Debug)]
pub struct Link {
    /// What the server says.
    pub reader: Frames<ReadHalf<TlsStream<TcpStream>>>,
    /// Where our words go.
    pub writer: WriteHalf<TlsStream<TcpStream>>,
    /// The address that worked.
    pub address: SocketAddr,
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
    let tls = TlsConnector::from(secure::client(&access.certificate)?);
    let (mut failures, mut stranger) = (Vec::new(), false);
    for address in &access.addresses {
        match timeout(PATIENCE, introduce(&tls, *address, access, role)).await {
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

async fn introduce(
    tls: &TlsConnector,
    address: SocketAddr,
    access: &Access,
    role: Role,
) -> io::Result<Result<Link, LinkError>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    notice_silence(&stream)?;
    let stream = tls.connect(secure::server_name(), stream).await?;
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
        Welcome::Version(_) => Ok(Link { reader, writer, address }),
        Welcome::Refused(why) => Err(LinkError::Refused(why)),
    })
}
