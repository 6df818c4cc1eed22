//! Socket for clients on the server's machine: an abstract Unix socket, which leaves no file
//! behind. The kernel reports the peer's user, and only the server's own user is accepted. So
//! nothing needs to be encrypted, and a short command such as a submission takes less time than
//! over TLS.

use std::io;

use longshore::UnitId;
use tokio::net::{UnixListener, UnixStream};

/// Listens under a new name. Returns `None` if the system has no abstract sockets.
pub(crate) fn listen() -> Option<(String, UnixListener)> {
    let name = format!("longshore-{}", UnitId::new());
    let listener = UnixListener::bind(abstract_name(&name));
    let listener =
        listener.inspect_err(|error| tracing::debug!(%error, "no local socket: clients use the network"));
    Some((name, listener.ok()?))
}

/// Connects to the server that listens under this name, if it runs as the same user. Fails at once
/// if no process listens or its backlog is full.
pub(crate) async fn connect(name: &str) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(abstract_name(name)).await?;
    require_same_user(&stream)?;
    Ok(stream)
}

/// Abstract names begin with a zero byte. On other systems than Linux they are invalid paths.
fn abstract_name(name: &str) -> String {
    format!("\0{name}")
}

/// Any local user can see the name, and can bind it once the server is gone.
pub(crate) fn require_same_user(stream: &UnixStream) -> io::Result<()> {
    require_user(stream, rustix::process::geteuid().as_raw())
}

fn require_user(stream: &UnixStream, uid: u32) -> io::Result<()> {
    if stream.peer_cred()?.uid() == uid {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "the peer runs as another user"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn another_user_is_not_spoken_to() {
        let (here, _there) = UnixStream::pair().unwrap();
        require_same_user(&here).unwrap();
        let other = rustix::process::geteuid().as_raw() + 1;
        assert_eq!(require_user(&here, other).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
