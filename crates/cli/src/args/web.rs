//! `longshore serve` and `longshore token …` as typed.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use longshore::ledger::Role;
use longshore::{TenantId, TokenId};

use crate::span::Span;

/// Serve the API.
#[derive(Debug, Args)]
#[command(
    after_help = "Without a token in the store, everybody on this machine is let in, and nobody else. Once
`token add` was used, everybody needs one. Other addresses than loopback need one from the start,
and TLS.

Examples:
  longshore serve
  curl http://127.0.0.1:7717/api/v1/queues
  longshore serve --listen 0.0.0.0:7717 --tls-cert site.pem --tls-key site.key"
)]
pub struct Serve {
    /// Where to listen [env: LONGSHORE_LISTEN] [default: 127.0.0.1:7717]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// The certificate with its chain, in PEM [env: LONGSHORE_TLS_CERT]
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's key, in PEM [env: LONGSHORE_TLS_KEY]
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Serve others without TLS: something before us has it, or tokens may be read by anybody on the way
    #[arg(long, conflicts_with = "tls_cert")]
    pub no_tls: bool,
    /// Demand a token from everybody, even while there is none
    #[arg(long)]
    pub locked: bool,
    /// Hand scripts to workers, too: those of `worker --server DIR`, with the folder of `[dispatch] dir`
    #[arg(long)]
    pub dispatch: bool,
    /// Addresses that script workers may come to, in the order in which they try them
    /// [default: 127.0.0.1]
    #[arg(long, value_name = "IP", requires = "dispatch")]
    pub dispatch_listen: Vec<std::net::IpAddr>,
}

/// Give, list and revoke tokens.
#[derive(Debug, Subcommand)]
pub enum Token {
    /// Make a token and print it, once; the store keeps only its hash
    Add(Add),
    /// Tokens, without themselves
    List,
    /// Let a token open nothing any more, from now on
    Revoke {
        /// Its id, as `token list` shows it
        #[arg(value_name = "ID")]
        id: TokenId,
    },
}

/// Make a token.
#[derive(Debug, Args)]
#[command(
    after_help = "Roles: read looks; submit also sends units and waits for them; operate also cancels, retries,
pauses and resumes; admin does all that for every tenant, sees workers and pools, and reads payloads
of its own tenant only.

Whoever may submit decides what workers run: give `submit` for tenants whose kinds you trust with it.

Examples:
  longshore token add --for acme --role submit --label \"acme's web shop\" > shop.token
  longshore token add --role admin --expires 90d --label \"the night shift\""
)]
pub struct Add {
    /// Whose it is [default: --tenant's]
    #[arg(long = "for", value_name = "TENANT")]
    pub owner: Option<TenantId>,
    /// read, submit, operate or admin
    #[arg(long, default_value = "read", value_name = "ROLE")]
    pub role: Role,
    /// Who has it, for people
    #[arg(long, default_value = "", value_name = "WORDS", hide_default_value = true)]
    pub label: String,
    /// It is good for this long, as 90d [default: until it is revoked]
    #[arg(long, value_name = "TIME")]
    pub expires: Option<Span>,
}
