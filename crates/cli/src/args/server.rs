//! Arguments that select a server. Flattened into the commands that can run through a server; other
//! commands neither take these options nor read their variables.

use std::path::PathBuf;

use clap::Args;

/// A server instead of a store.
#[derive(Debug, Clone, Default, Args)]
pub struct ServerArgs {
    /// URL of a server (`longshore serve`) to use instead of a store [env: LONGSHORE_SERVER]
    #[arg(long, global = true, value_name = "URL", conflicts_with = "store")]
    pub server: Option<String>,
    /// File with the server's token [env: LONGSHORE_TOKEN is the token itself]
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Certificate (PEM) to trust: the server's, or its issuer's
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub ca_file: Option<PathBuf>,
}
