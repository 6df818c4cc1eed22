//! Resolves the server that replaces the store, from the arguments and the environment.
//!
//! The token comes from a file or a variable, never from the arguments, which every process of the
//! machine can read.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use longshore_ai::SecretString;
use longshore_trusted_path::open_secret;
use longshore_web::client::{ApiClient, ApiError, ApiServer};
use reqwest::Url;

use crate::args::server::ServerArgs as Typed;
use crate::env;
use crate::error::{WithHint, usage};

/// Longer than any token.
const MAX_TOKEN: u64 = 64 * 1024;

/// The client of the selected server, if any: from the command's own option, or from the
/// environment unless a store was given.
pub fn resolve(typed: &Typed, store_typed: bool) -> anyhow::Result<Option<ApiClient>> {
    let from_env = || env::secret(env::SERVER).filter(|url| !url.is_empty() && !store_typed);
    let Some(address) = typed.server.clone().or_else(from_env) else {
        return match typed.token_file.is_some() || typed.ca_file.is_some() {
            true => Err(usage("--token-file and --ca-file are for a server"))
                .hint("name one with --server URL or LONGSHORE_SERVER"),
            false => Ok(None),
        };
    };
    // No message contains the address: the user may have put a token into it.
    let url: Url = address
        .parse()
        .map_err(|_| usage("the server's address is not a URL"))
        .hint("as https://HOST:7717, or http://127.0.0.1:7717")?;
    let token = token(typed.token_file.as_deref())?;
    if token.is_some() && url.scheme() == "http" && !is_loopback(&url) {
        tracing::warn!("the token is sent without TLS: it is readable on the network");
    }
    let roots = typed
        .ca_file
        .as_deref()
        .map(|file| std::fs::read(file).with_context(|| format!("cannot read {}", file.display())));
    // No retries here, as in a store: senders and waiters retry themselves.
    let server = ApiServer { token, roots: roots.transpose()?, ..ApiServer::new(url) };
    let client = ApiClient::new(server).map_err(|error| match error {
        ApiError::InvalidUrl { .. } | ApiError::InvalidToken | ApiError::NoCertificate => {
            let hint = error.hint().unwrap_or_default();
            crate::error::hinted(usage(error.to_string()), hint)
        }
        other => other.into(),
    });
    client.map(Some)
}

fn token(file: Option<&Path>) -> anyhow::Result<Option<SecretString>> {
    let Some(file) = file else {
        let given = env::secret(env::TOKEN).filter(|token| !token.trim().is_empty());
        return Ok(given.map(|token| token.trim().into()));
    };
    let mut text = String::new();
    let cannot = || format!("cannot read {}", file.display());
    let opened = open_secret(file).with_context(cannot)?;
    opened.take(MAX_TOKEN).read_to_string(&mut text).with_context(cannot)?;
    let token = text.trim();
    match token.is_empty() {
        true => Err(usage(format!("there is no token in {}", file.display())))
            .hint("`(umask 077; longshore --quiet token add > FILE)` writes one"),
        false => Ok(Some(token.into())),
    }
}

fn is_loopback(url: &Url) -> bool {
    let name = url.host_str().unwrap_or_default();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}
