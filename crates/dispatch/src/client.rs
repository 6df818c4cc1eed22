//! Client of a dispatch server: one connection, one request at a time.

use std::io;
use std::path::Path;

use longshore::store::SendRejection;
use tokio::io::AsyncWriteExt;

use crate::access::Access;
use crate::connection::{ConnectError, ServerConnection, connect};
use crate::request::{ClientRequest, ServerReply};
use crate::wire::PeerRole;
use crate::wire::frame::{decode_json, encode_json};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No connection could be established.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection broke.
    #[error("the connection to the server broke: {0}")]
    Broken(#[from] io::Error),
    /// The server rejected the request.
    #[error("{0}")]
    Refused(String),
    /// The store rejected the submission.
    #[error("the submission was rejected: {0}")]
    Rejected(SendRejection),
}

/// A connection to a server.
#[derive(Debug)]
pub struct DispatchClient {
    connection: ServerConnection,
}

impl DispatchClient {
    /// Connects to the server of the pool in `folder`.
    pub async fn connect(folder: &Path) -> Result<Self, ClientError> {
        let access = Access::read(folder, PeerRole::Client).map_err(ConnectError::from)?;
        Ok(Self { connection: connect(&access, PeerRole::Client).await? })
    }

    /// Whether the server runs on this machine.
    pub fn is_local(&self) -> bool {
        self.connection.address.is_none()
    }

    /// Sends a request and waits for the reply.
    pub async fn request(&mut self, request: &ClientRequest) -> Result<ServerReply, ClientError> {
        let mut bytes = Vec::new();
        encode_json(request, &mut bytes)?;
        self.connection.writer.write_all(&bytes).await?;
        self.connection.writer.flush().await?;
        let frame = self.connection.reader.next().await?.ok_or(io::ErrorKind::UnexpectedEof);
        let frame = frame.map_err(io::Error::from)?;
        match decode_json(&frame)? {
            ServerReply::Error(why) => Err(ClientError::Refused(why)),
            ServerReply::NotTaken(why) => Err(ClientError::Rejected(why)),
            reply => Ok(reply),
        }
    }
}
