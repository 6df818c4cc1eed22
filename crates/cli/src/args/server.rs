//! Over which server a command goes, as typed. Flattened into those commands that can; others do not know
//! these options, and do not look at their variables.

use std::path::PathBuf;

use clap::Args;

/// A server instead of a store.
#[derive(Debug, Clone, Default, Args)]
pub struct Server {
    /// Ask the server there (`longshore serve`), not a store [env: LONGSHORE_SERVER]
    #[arg(long, global = true, value_name = "URL", conflicts_with = "store")]
    pub server: Option<String>,
    /// Where the server's token is [env: LONGSHORE_TOKEN is the token itself]
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Trust this certificate (PEM) of the server's, or of who signed it
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub ca_file: Option<PathBuf>,
}
