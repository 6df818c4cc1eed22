//! What `serve` prints when it listens: its address, and how to log in.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use longshore_web::{AuthMode, FreshToken};
use serde::Serialize;

use crate::config::ListenAddress;
use crate::settings::Settings;

/// Where and for which clients the server listens.
pub struct Greeting {
    pub listen: ListenAddress,
    pub is_tls: bool,
    pub mode: AuthMode,
    /// The token that was just made.
    pub token: Option<FreshToken>,
}

impl Greeting {
    /// Prints it. The token is printed also with `--quiet`: it cannot be retrieved again.
    pub fn print(&self, settings: &Settings) -> anyhow::Result<()> {
        #[derive(Serialize)]
        struct Answer<'a> {
            listen: String,
            tls: bool,
            auth: bool,
            #[serde(flatten)]
            token: Option<FirstToken<'a>>,
        }
        #[derive(Serialize)]
        struct FirstToken<'a> {
            token: &'a str,
            login: &'a str,
        }
        let login = self.token.as_ref().map(|token| self.login_link(token, settings));
        let token = self.token.as_ref().zip(login.as_deref());
        let token = token.map(|(token, login)| FirstToken { token: token.expose(), login });
        let (listen, auth) = (self.listen.to_string(), self.mode == AuthMode::TokenRequired);
        let answer = Answer { listen, tls: self.is_tls, auth, token };
        settings.output.answer(&answer, || self.sentence())?;
        match (&self.token, &login) {
            _ if settings.output.is_json() => {}
            (Some(token), Some(login)) => {
                settings.output.line(format!("admin token, shown only now: {}", token.expose()))?;
                settings.output.line(format!("log in: {login}"))?;
            }
            _ if auth => settings.output.note("`longshore token add --role admin` makes another token"),
            _ => {}
        }
        Ok(())
    }

    fn sentence(&self) -> String {
        let clients = match (self.mode, &self.listen) {
            (AuthMode::TokenRequired, _) => "to clients with a token",
            (AuthMode::NoAuth, ListenAddress::Tcp(_)) => {
                "without authentication to all users of this machine"
            }
            (AuthMode::NoAuth, ListenAddress::Unix(_)) => "without authentication to your user and root",
        };
        match &self.listen {
            ListenAddress::Tcp(address) => format!("serving {}://{address}/ {clients}", self.scheme()),
            ListenAddress::Unix(_) => format!("serving {} {clients}", self.listen),
        }
    }

    fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    fn login_link(&self, token: &FreshToken, settings: &Settings) -> String {
        let site = match (&settings.web.public_url, &self.listen) {
            (Some(url), _) => url.to_string(),
            (None, ListenAddress::Tcp(address)) => format!("{}://{}", self.scheme(), reachable(*address)),
            (None, ListenAddress::Unix(_)) => "http://localhost".to_owned(),
        };
        format!("{site}/login?token={}", token.expose())
    }
}

/// An address that a browser on this machine can open.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address {
        _ if !address.ip().is_unspecified() => address.ip(),
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}
