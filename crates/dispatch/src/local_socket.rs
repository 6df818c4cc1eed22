//! A way in for clients on the server's own machine: a socket that has a name but no file, so nothing is
//! left of it. The system says who is at the other end. Whoever is not the same user is not spoken
//! to, so there is nothing to encrypt, and a command that only leaves a script is done sooner.

use std::io;

use longshore::UnitId;
use tokio::net::{UnixListener, UnixStream};

/// Listens under a new name. None where the system has no such sockets.
pub(crate) fn listen() -> Option<(String, UnixListener)> {
    let name = format!("longshore-{}", UnitId::new());
    let listener = UnixListener::bind(abstract_name(&name));
    let listener =
        listener.inspect_err(|error| tracing::debug!(%error, "clients come by network only"));
    Some((name, listener.ok()?))
}

/// Connects to whoever listens under this name, if it is the same user. Fails at once where nobody does,
/// or where too many wait to be let in.
pub(crate) async fn connect(name: &str) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(abstract_name(name)).await?;
    require_same_user(&stream)?;
    Ok(stream)
}

/// Such names begin with a zero. Elsewhere than on Linux they are bad paths.
fn abstract_name(name: &str) -> String {
    format!("\0{name}")
}

/// A name is seen by everybody on the machine, and free once its server is gone.
pub(crate) fn require_same_user(stream: &UnixStream) -> io::Result<()> {
    require_user(stream, rustix::process::geteuid().as_raw())
}

fn require_user(stream: &UnixStream, uid: u32) -> io::Result<()> {
    if stream.peer_cred()?.uid() == uid {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user is at the other end"))
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
