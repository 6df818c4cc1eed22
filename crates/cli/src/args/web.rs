//! Arguments of `longshore serve` and `longshore token …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use longshore::accounts::Role;
use longshore::{HumanDuration, TenantId, TokenId};

use crate::config::ListenAddress;

/// Serves the API.
#[derive(Debug, Args)]
#[command(
    after_help = "Every client needs a token. If the store has no valid one, `serve` makes an admin token
and prints it once, with a link that logs a browser in. `token add` makes further tokens. Other
addresses than loopback also need TLS.

Examples:
  longshore serve
  longshore serve --listen 0.0.0.0:7717 --tls-cert site.pem --tls-key site.key
  longshore serve --listen unix:/run/longshore/api.sock --no-auth
  curl --unix-socket /run/longshore/api.sock http://localhost/api/v1/queues"
)]
pub struct ServeArgs {
    /// Address to listen on, or unix:PATH for a socket [env: LONGSHORE_LISTEN] [default:
    /// 127.0.0.1:7717]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<ListenAddress>,
    /// Certificate with its chain, in PEM [env: LONGSHORE_TLS_CERT]
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM [env: LONGSHORE_TLS_KEY]
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Serve other machines without TLS: only behind a TLS proxy, as tokens are readable on the
    /// wire
    #[arg(long, conflicts_with = "tls_cert")]
    pub no_tls: bool,
    /// Serve without tokens: every user of this machine may do everything, on a Unix socket only
    /// your own user and root. Requests through a proxy are rejected
    #[arg(long)]
    pub no_auth: bool,
    /// Also run a worker server for scripts: for `worker --server DIR`, with the folder of
    /// `[dispatch] dir`
    #[arg(long)]
    pub dispatch: bool,
    /// Addresses that script workers may connect to, in the order in which they try them [default:
    /// 127.0.0.1]
    #[arg(long, value_name = "IP", requires = "dispatch")]
    pub dispatch_listen: Vec<std::net::IpAddr>,
}

/// Create, list and revoke tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token and print it, once; the store keeps only its hash
    Add(TokenAddArgs),
    /// List tokens (secrets hidden)
    List,
    /// Revoke a token
    Revoke {
        /// Id, as `token list` shows it
        #[arg(value_name = "ID")]
        id: TokenId,
    },
}

/// Creates a token.
#[derive(Debug, Args)]
#[command(
    after_help = "Roles: read shows data; submit also submits units and waits for them; operate also cancels, retries,
pauses and resumes; admin does all that for every tenant, sees workers and pools, and reads payloads
of its own tenant only.

A token with `submit` decides what workers run: give it for tenants whose kinds you trust with it.

Examples:
  (umask 077; longshore token add --for acme --role submit --label \"acme's web shop\" > shop.token)
  longshore token add --role admin --expires 90d --label \"the night shift\""
)]
pub struct TokenAddArgs {
    /// Tenant that owns the token [default: --tenant's]
    #[arg(long = "for", value_name = "TENANT")]
    pub owner: Option<TenantId>,
    /// Role: read, submit, operate or admin
    #[arg(long, default_value = "read", value_name = "ROLE")]
    pub role: Role,
    /// Label that names the holder of the token, for people
    #[arg(long, default_value = "", value_name = "WORDS", hide_default_value = true)]
    pub label: String,
    /// Lifetime, as 90d [default: until it is revoked]
    #[arg(long, value_name = "TIME")]
    pub expires: Option<HumanDuration>,
}
