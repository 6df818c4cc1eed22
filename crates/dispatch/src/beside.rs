//! A way in for clients on the server's own machine: a socket that has a name but no file, so nothing is
//! left of it. The system says who is at the other end. Whoever is not the same user is not spoken
//! to, so there is nothing to encrypt, and a command that only leaves a script is done sooner.

use std::io;

use longshore::UnitId;
use tokio::net::{UnixListener, UnixStream};

/// Listens under a new name. None where the system has no such sockets.
pub(crate) fn listen() -> Option<(String, UnixListener)> {
    let name = format!("longshore-{}", UnitId::new());
    let listener = system::listen(&name).and_then(UnixListener::from_std);
    let told =
        listener.inspect_err(|error| tracing::debug!(%error, "clients come by network only"));
    Some((name, told.ok()?))
}

/// Connects to whoever listens under this name, if it is the same user.
pub(crate) fn connect(name: &str) -> io::Result<UnixStream> {
    let stream = system::connect(name)?;
    stream.set_nonblocking(true)?;
    let stream = UnixStream::from_std(stream)?;
    demand_same_user(&stream)?;
    Ok(stream)
}

/// A name is seen by everybody on the machine, and free once its server is gone.
pub(crate) fn demand_same_user(stream: &UnixStream) -> io::Result<()> {
    demand(stream, rustix::process::geteuid().as_raw())
}

fn demand(stream: &UnixStream, uid: u32) -> io::Result<()> {
    if stream.peer_cred()?.uid() == uid {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user is at the other end"))
}

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

    pub(super) fn listen(name: &str) -> io::Result<UnixListener> {
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Does not wait: either somebody listens on this machine, or nobody does.
    pub(super) fn connect(name: &str) -> io::Result<UnixStream> {
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;
    use std::os::unix::net::{UnixListener, UnixStream};

    pub(super) fn listen(_: &str) -> io::Result<UnixListener> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn connect(_: &str) -> io::Result<UnixStream> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn another_user_is_not_spoken_to() {
        let (here, _there) = UnixStream::pair().unwrap();
        demand_same_user(&here).unwrap();
        let other = rustix::process::geteuid().as_raw() + 1;
        assert_eq!(demand(&here, other).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
