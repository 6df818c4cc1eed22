//! Client of a dispatch server: one connection, one request at a time.

use std::io;
use std::path::Path;
use std::time::Duration;

use longshore::store::SendRejection;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

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
    /// The server did not reply in time.
    #[error("the server did not reply within {0:?}; its process may be stopped, or its machine overloaded")]
    NoReply(Duration),
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
    /// A request got no reply. The next reply would not be that of the next request.
    is_out_of_step: bool,
}

impl DispatchClient {
    /// Connects to the server of the pool in `folder`.
    pub async fn connect(folder: &Path) -> Result<Self, ClientError> {
        let access = Access::read(folder, PeerRole::Client).map_err(ConnectError::from)?;
        Ok(Self::over(connect(&access, PeerRole::Client).await?))
    }

    fn over(connection: ServerConnection) -> Self {
        Self { connection, is_out_of_step: false }
    }

    /// Whether the server runs on this machine.
    pub fn is_local(&self) -> bool {
        self.connection.address.is_none()
    }

    /// Sends a request and waits for the reply. After [`ClientError::Broken`] and [`ClientError::NoReply`] the
    /// connection cannot be used again.
    pub async fn request(&mut self, request: &ClientRequest) -> Result<ServerReply, ClientError> {
        if std::mem::replace(&mut self.is_out_of_step, true) {
            return Err(io::Error::other("an earlier request got no reply").into());
        }
        let exchange = self.exchange(request);
        let reply = match request.reply_timeout() {
            Some(limit) => timeout(limit, exchange).await.map_err(|_| ClientError::NoReply(limit))?,
            None => exchange.await,
        };
        let reply = reply?;
        self.is_out_of_step = false;
        match reply {
            ServerReply::Error(why) => Err(ClientError::Refused(why)),
            ServerReply::NotTaken(why) => Err(ClientError::Rejected(why)),
            reply => Ok(reply),
        }
    }

    async fn exchange(&mut self, request: &ClientRequest) -> io::Result<ServerReply> {
        let mut bytes = Vec::new();
        encode_json(request, &mut bytes)?;
        self.connection.writer.write_all(&bytes).await?;
        self.connection.writer.flush().await?;
        let frame = self.connection.reader.next().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        decode_json(&frame)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;
    use tokio_util::either::Either;

    use super::*;
    use crate::wire::MAX_FRAME;
    use crate::wire::frame::FrameReader;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_replies_is_an_error() {
        let (ours, _silent) = UnixStream::pair().unwrap();
        let (read, writer) = tokio::io::split(Either::Right(ours));
        let reader = FrameReader::new(read, MAX_FRAME);
        let mut client = DispatchClient::over(ServerConnection { reader, writer, address: None });
        let status = client.request(&ClientRequest::Status).await;
        assert!(matches!(status, Err(ClientError::NoReply(_))), "{status:?}");
        // A late reply is not taken for that of another request.
        let next = client.request(&ClientRequest::Explain).await;
        assert!(matches!(next, Err(ClientError::Broken(_))), "{next:?}");
    }
}
