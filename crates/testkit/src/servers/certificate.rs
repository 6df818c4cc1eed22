//! Certificates for a server that offers TLS: an authority's, and one for `localhost` that it signed.

use std::io;
use std::path::Path;

use super::{account, program, run};

/// The authority's certificate.
pub(super) const AUTHORITY: &str = "authority.pem";
/// The server's certificate.
pub(super) const OWN: &str = "server.pem";
/// The server's key.
pub(super) const KEY: &str = "server.key";

/// Makes them in a server's folder.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    let new = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(
        folder,
        &format!("{new} -x509 -subj /CN=authority -keyout {AUTHORITY}.key -out {AUTHORITY}"),
    )?;
    let names = "-subj /CN=localhost -addext subjectAltName=DNS:localhost";
    openssl(folder, &format!("{new} {names} -keyout {KEY} -out server.csr"))?;
    let by = format!("-CA {AUTHORITY} -CAkey {AUTHORITY}.key -CAcreateserial");
    openssl(
        folder,
        &format!("x509 -req -in server.csr {by} -days 2 -copy_extensions copy -out {OWN}"),
    )
}

/// As the server's account: a key must belong to it.
fn openssl(folder: &Path, args: &str) -> io::Result<()> {
    let mut command = account::command(&program("openssl", &[], "openssl")?, folder);
    command.args(args.split_whitespace());
    run(command).map(drop)
}
