//! Arguments of `longshore completions|man …`, the commands about the binary itself.

use std::path::PathBuf;

use clap::Args;

/// How to install completions.
pub const COMPLETIONS: &str = "Examples:
  source <(longshore completions bash)              for this shell
  longshore completions bash > ~/.local/share/bash-completion/completions/longshore
  longshore completions zsh > \"${fpath[1]}/_longshore\"
  longshore completions fish > ~/.config/fish/completions/longshore.fish";

/// Prints the manual page of a command, or writes all pages.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore man | man -l -                          the main page
  longshore man batch run | man -l -                the page of one command
  longshore man --out ~/.local/share/man/man1       all pages, as longshore-batch-run.1")]
pub struct ManArgs {
    /// Command to describe, as `batch run` [default: longshore itself]
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    pub command: Vec<String>,
    /// Write one page per command into this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}
