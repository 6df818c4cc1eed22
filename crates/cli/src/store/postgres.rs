//! A PostgreSQL URL, printed everywhere without its password.

use std::str::FromStr;

use anyhow::Context;
use longshore::migration::MigrateOnOpen;
use longshore_postgres::{Listen, PostgresMigrator, PostgresOptions, PostgresStore};
use longshore_postgres_url::{Host, parse};

use crate::config::PostgresConfig;
use crate::error::{WithHint, usage};
use crate::settings::Settings;

/// A PostgreSQL URL.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresStoreUrl(String);

impl FromStr for PostgresStoreUrl {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        // The error does not repeat the text, which may hold a password.
        match parse(text) {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(error) => Err(usage(error.to_string())).hint("in a password, write @ as %40 and / as %2F"),
        }
    }
}

impl PostgresStoreUrl {
    /// The URL with its password.
    pub fn with_password(&self) -> &str {
        &self.0
    }

    /// The URL of another database on the same server.
    pub fn with_database(&self, name: &str) -> Self {
        let (before, query) = match self.0.split_once('?') {
            Some((before, query)) => (before, format!("?{query}")),
            None => (self.0.as_str(), String::new()),
        };
        let server = before.find("://").map_or(0, |at| at + 3);
        let end = before[server..].find('/').map_or(before.len(), |at| server + at);
        Self(format!("{}/{name}{query}", &before[..end]))
    }

    /// The server's `host:port`, if the URL names one server over TCP.
    pub fn server(&self) -> Option<String> {
        let url = parse(&self.0).ok()?;
        let (hosts, addresses) = (url.config.get_hosts(), url.config.get_hostaddrs());
        let single =
            matches!(hosts, [Host::Tcp(_)]) && addresses.is_empty() && url.config.get_ports().len() <= 1;
        single.then(|| url.host_and_port())
    }

    /// The URL of the same server through a proxy at this port of 127.0.0.1. TLS still checks the server's name.
    pub fn through_port(&self, port: u16) -> Self {
        let (before, query) = self.0.split_once('?').unwrap_or((&self.0, ""));
        let authority = before.find("://").map_or(0, |at| at + 3);
        let host = before[authority..].rfind('@').map_or(authority, |at| authority + at + 1);
        let end = before[host..].find('/').map_or(before.len(), |at| host + at);
        let name_end = match before[host..end].rfind([':', ']']) {
            Some(at) if before[host + at..].starts_with(':') => host + at,
            _ => end,
        };
        let others = query.split('&').filter(|option| !option.is_empty());
        let options: Vec<&str> = others.chain(["hostaddr=127.0.0.1"]).collect();
        Self(format!("{}:{port}{}?{}", &before[..name_end], &before[end..], options.join("&")))
    }

    /// Opens the store.
    pub async fn open(&self, settings: &Settings) -> anyhow::Result<PostgresStore> {
        let store = PostgresStore::open(&self.0, options(settings)).await;
        store.with_context(|| format!("cannot open the store {self}"))
    }

    /// The migrator of the store.
    pub fn migrator(&self, settings: &Settings) -> anyhow::Result<PostgresMigrator> {
        Ok(PostgresMigrator::new(&self.0, &options(settings))?)
    }
}

fn options(settings: &Settings) -> PostgresOptions {
    let PostgresConfig { listen_url, connections, max_clock_skew, migrate_on_open, effect_timeout } =
        &settings.postgres;
    PostgresOptions {
        connections: *connections,
        listen: listen_url.as_ref().map_or(Listen::Auto, |url| Listen::Url(url.0.clone())),
        max_clock_skew: *max_clock_skew,
        effect_timeout: *effect_timeout,
        migrate: match (settings.inspect_only, migrate_on_open) {
            (true, _) => MigrateOnOpen::Never,
            (false, true) => MigrateOnOpen::Always,
            (false, false) => MigrateOnOpen::Fresh,
        },
        ..PostgresOptions::default()
    }
}

impl std::fmt::Display for PostgresStoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("postgres", &self.0));
        write!(f, "{scheme}://")?;
        // The driver reads a login up to the first @, whatever is before it.
        let rest = match rest.split_once('@') {
            None => rest,
            Some((login, rest)) => {
                match login.split_once(':') {
                    Some((user, _)) => write!(f, "{user}:***@")?,
                    None => write!(f, "{login}@")?,
                }
                rest
            }
        };
        match rest.find("password=") {
            Some(at) => write!(f, "{}password=***", &rest[..at]),
            None => f.write_str(rest),
        }
    }
}

impl std::fmt::Debug for PostgresStoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PostgresUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> PostgresStoreUrl {
        text.parse().unwrap()
    }

    #[test]
    fn secrets_never_printed() {
        for (text, shown) in [
            ("postgres://ada@db/x", "postgres://ada@db/x"),
            ("postgres://ada:s3cret@db:1/x?sslmode=require", "postgres://ada:***@db:1/x?sslmode=require"),
            ("postgresql://ada:s3%40cret@db/x", "postgresql://ada:***@db/x"),
            ("postgres://ada@db/x?password=s3cret", "postgres://ada@db/x?password=***"),
            ("postgres://db/x?password=s3cret&user=ada", "postgres://db/x?password=***"),
            ("postgres://ada@db/x?password=s3@cret", "postgres://ada@db/x?password=***"),
            ("postgres://ada:s3?cret@db/x", "postgres://ada:***@db/x"),
        ] {
            let url = url(text);
            assert_eq!(url.to_string(), shown);
            assert!(!format!("{url:?}").contains("cret"), "{url:?}");
            assert_eq!(url.with_password(), text);
        }
        for bad in [
            "postgres:ada:s3cret@db",
            "postgres:host=db password=s3cret",
            "postgres://ada:s3cret@db:port/x",
            "postgres://ada:x@s3cret@db/x",
            "postgres://ada@db/x?password=x&s3cret=1",
        ] {
            let error = bad.parse::<PostgresStoreUrl>().unwrap_err();
            assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
        }
    }

    #[test]
    fn tls_options_are_those_of_the_store() {
        for mode in ["verify-ca", "verify-full"] {
            url(&format!("postgres://ada@db/x?sslmode={mode}&sslrootcert=%2Fetc%2Fown%20ca.pem"));
        }
    }

    #[test]
    fn another_database_of_the_same_server_keeps_all_else() {
        for (text, other) in [
            ("postgres://a:b@db:1/x?sslmode=disable", "postgres://a:b@db:1/y?sslmode=disable"),
            ("postgres://a:b@db", "postgres://a:b@db/y"),
            ("postgres://db/?user=a", "postgres://db/y?user=a"),
        ] {
            assert_eq!(url(text).with_database("y"), url(other));
        }
    }

    #[test]
    fn a_url_through_a_proxy_keeps_the_servers_name_for_tls() {
        for (text, server, through) in [
            ("postgres://a:b@db:1/x", "db:1", "postgres://a:b@db:9/x?hostaddr=127.0.0.1"),
            ("postgres://db", "db:5432", "postgres://db:9?hostaddr=127.0.0.1"),
            (
                "postgres://a@db/x?sslmode=disable",
                "db:5432",
                "postgres://a@db:9/x?sslmode=disable&hostaddr=127.0.0.1",
            ),
        ] {
            assert_eq!(url(text).server().as_deref(), Some(server));
            assert_eq!(url(text).through_port(9).with_password(), through);
            assert_eq!(parse(through).unwrap().config.get_hostaddrs().len(), 1);
        }
        for several in ["postgres://a,b/x", "postgres:///x?host=/run/postgresql"] {
            assert_eq!(url(several).server(), None);
        }
    }
}
