//! A private mail server, which keeps what it takes and behaves as a recipient's name says.

use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::process::Process;
use super::{account, certificate, on_a_free_port};

const SCRIPT: &str = include_str!("smtp.py");
const PACKAGE: &str = "python3-aiosmtpd";
const USER: &str = "longshore";
const PASSWORD: &str = "tide-table-7%";

/// How connections to it are secured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailSecurity {
    /// Not at all.
    None,
    /// By STARTTLS, which it insists on.
    StartTls,
    /// From the first byte.
    Tls,
}

/// A mail server of one test's own, on loopback. Stopped and removed when dropped.
#[derive(Debug)]
pub struct PrivateSmtp {
    // Before the folder, so that it is stopped before its files go.
    process: Option<Process>,
    folder: TempDir,
    port: u16,
    security: MailSecurity,
    asks: bool,
}

impl PrivateSmtp {
    /// One that anybody may send to.
    pub fn start(security: MailSecurity) -> io::Result<Self> {
        Self::start_with(security, false)
    }

    /// One that takes mail from [`user`](Self::user) only.
    pub fn start_asking(security: MailSecurity) -> io::Result<Self> {
        Self::start_with(security, true)
    }

    fn start_with(security: MailSecurity, asks: bool) -> io::Result<Self> {
        let folder = account::folder("longshore-smtp-")?;
        certificate::make(folder.path())?;
        let mut server = Self { process: None, folder, port: 0, security, asks };
        let (process, port) = on_a_free_port(|port| {
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

    /// Who may send, and the password, which nobody must ever print.
    pub fn user(&self) -> (&'static str, &'static str) {
        (USER, PASSWORD)
    }

    /// The certificate of whoever signed the server's own.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join(certificate::AUTHORITY)
    }

    /// What arrived so far, one line of JSON each: `id`, `from`, `to`, `secure`, `user`, `peer`, `content`.
    pub fn arrived(&self) -> io::Result<Vec<serde_json::Value>> {
        let text = match std::fs::read_to_string(self.folder.path().join("arrived")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        // The last line may be on its way.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).map_err(io::Error::from)).collect()
    }

    /// How many connections ended with a word of goodbye.
    pub fn goodbyes(&self) -> io::Result<usize> {
        match std::fs::read_to_string(self.folder.path().join("quit")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            text => Ok(text?.lines().count()),
        }
    }

    /// Stops it; what arrived stays. Its clients' connections are closed.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Starts it again where it was.
    pub fn restart(&mut self) -> io::Result<()> {
        self.stop();
        self.process = Some(self.serve()?);
        Ok(())
    }

    fn serve(&self) -> io::Result<Process> {
        // Debian's own: another on the path may not have Debian's packages.
        let python = Path::new("/usr/bin/python3");
        let (folder, port) = (self.folder.path().display().to_string(), self.port.to_string());
        let security = match self.security {
            MailSecurity::None => "none",
            MailSecurity::StartTls => "starttls",
            MailSecurity::Tls => "tls",
        };
        let mut args = vec!["-c", SCRIPT, &folder, &port, security];
        if self.asks {
            args.extend([USER, PASSWORD]);
        }
        Process::start(python, &args, self.folder.path(), "ready for mail", "TERM").map_err(
            |error| match error.to_string().contains("No module named 'aiosmtpd'") {
                true => io::Error::other(format!(
                    "aiosmtpd is missing: install the Debian package {PACKAGE}"
                )),
                false => error,
            },
        )
    }
}
