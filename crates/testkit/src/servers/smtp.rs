//! A private mail server. It stores messages; a recipient's name selects its behaviour.

use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::process::ServerProcess;
use super::{certificate, os_user, with_free_port};

const SCRIPT: &str = include_str!("smtp.py");
const PACKAGE: &str = "python3-aiosmtpd";
const USER: &str = "longshore";
const PASSWORD: &str = "tide-table-7%";

/// The security of connections to the mail server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailSecurity {
    /// Plain text.
    None,
    /// STARTTLS, required.
    StartTls,
    /// TLS from the first byte.
    Tls,
}

/// A mail server for one test, on loopback. Dropping it stops and removes it.
#[derive(Debug)]
pub struct PrivateSmtp {
    // Declared before the folder: the server stops before its files are removed.
    process: Option<ServerProcess>,
    folder: TempDir,
    port: u16,
    security: MailSecurity,
    requires_auth: bool,
}

impl PrivateSmtp {
    /// Starts a server without authentication.
    pub fn start(security: MailSecurity) -> io::Result<Self> {
        Self::start_with(security, false)
    }

    /// Starts a server that requires the login of [`user`](Self::user).
    pub fn start_with_auth(security: MailSecurity) -> io::Result<Self> {
        Self::start_with(security, true)
    }

    fn start_with(security: MailSecurity, requires_auth: bool) -> io::Result<Self> {
        let folder = os_user::folder("longshore-smtp-")?;
        certificate::make(folder.path())?;
        let mut server = Self { process: None, folder, port: 0, security, requires_auth };
        let (process, port) = with_free_port(|port| {
            server.port = port;
            Ok((server.serve()?, port))
        })?;
        (server.process, server.port) = (Some(process), port);
        Ok(server)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The user and the password. No output of Longshore may contain the password.
    pub fn user(&self) -> (&'static str, &'static str) {
        (USER, PASSWORD)
    }

    /// The certificate of the authority that signed the server's.
    pub fn ca_certificate(&self) -> PathBuf {
        self.folder.path().join(certificate::AUTHORITY)
    }

    /// The messages received so far, as JSON: `id`, `from`, `to`, `secure`, `user`, `peer`, `content`.
    pub fn messages(&self) -> io::Result<Vec<serde_json::Value>> {
        let text = match std::fs::read_to_string(self.folder.path().join("arrived")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        // The last line may be incomplete.
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        complete.lines().map(|line| serde_json::from_str(line).map_err(io::Error::from)).collect()
    }

    /// How many connections ended with QUIT.
    pub fn quit_count(&self) -> io::Result<usize> {
        match std::fs::read_to_string(self.folder.path().join("quit")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            text => Ok(text?.lines().count()),
        }
    }

    /// Stops the server and closes its connections; keeps received messages.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Restarts the server on the same port.
    pub fn restart(&mut self) -> io::Result<()> {
        self.stop();
        self.process = Some(self.serve()?);
        Ok(())
    }

    fn serve(&self) -> io::Result<ServerProcess> {
        // Debian's interpreter: another one in `PATH` may not find Debian's packages.
        let python = Path::new("/usr/bin/python3");
        let (folder, port) = (self.folder.path().display().to_string(), self.port.to_string());
        let security = match self.security {
            MailSecurity::None => "none",
            MailSecurity::StartTls => "starttls",
            MailSecurity::Tls => "tls",
        };
        let mut args = vec!["-c", SCRIPT, &folder, &port, security];
        if self.requires_auth {
            args.extend([USER, PASSWORD]);
        }
        ServerProcess::start(python, &args, self.folder.path(), "ready for mail", "TERM").map_err(|error| {
            match error.to_string().contains("No module named 'aiosmtpd'") {
                true => {
                    io::Error::other(format!("aiosmtpd is missing: install the Debian package {PACKAGE}"))
                }
                false => error,
            }
        })
    }
}
