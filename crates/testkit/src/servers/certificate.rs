//! Certificates for a server with TLS: of a certificate authority, and one for `localhost` signed by it.

use std::io;
use std::path::Path;

use super::{os_user, program, run};

/// The file of the authority's certificate.
pub(super) const AUTHORITY: &str = "authority.pem";
/// The file of the server's certificate.
pub(super) const SERVER: &str = "server.pem";
/// The file of the server's key.
pub(super) const KEY: &str = "server.key";

/// Creates the certificates in a server's folder.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    let new = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(folder, &format!("{new} -x509 -subj /CN=authority -keyout {AUTHORITY}.key -out {AUTHORITY}"))?;
    let names = "-subj /CN=localhost -addext subjectAltName=DNS:localhost";
    openssl(folder, &format!("{new} {names} -keyout {KEY} -out server.csr"))?;
    let by = format!("-CA {AUTHORITY} -CAkey {AUTHORITY}.key -CAcreateserial");
    openssl(folder, &format!("x509 -req -in server.csr {by} -days 2 -copy_extensions copy -out {SERVER}"))
}

/// Runs openssl as the server's user, which must own the key.
fn openssl(folder: &Path, args: &str) -> io::Result<()> {
    let mut command = os_user::command(&program("openssl", &[], "openssl")?, folder);
    command.args(args.split_whitespace());
    run(command).map(drop)
}
