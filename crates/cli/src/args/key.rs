//! Arguments of `longshore key …`. Secrets are never arguments: they come from stdin.
//!
//! Names are read as plain text here and validated by the command: clap repeats a rejected value in
//! its error, and users paste the secret itself where its name belongs.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use longshore::{HumanDuration, TenantId};

use super::unit_worker::PageArgs;

/// Store keys of providers in the vault.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Add a key; its secret is read from stdin, or prompted for
    Add(KeyAddArgs),
    /// List keys and their versions, without their secrets
    List {
        #[command(flatten)]
        page: PageArgs,
    },
    /// Replace a key's secret; the previous version stays valid for a while
    Rotate(KeyRotateArgs),
    /// Revoke a key, or one version of it
    Revoke(KeyRevokeArgs),
    /// Create the file of the master key, which encrypts all keys
    Init(KeyInitArgs),
    /// Re-encrypt all keys with a new master key
    Rewrap(KeyRewrapArgs),
}

/// Selects a key.
#[derive(Debug, Args)]
pub struct KeyArg {
    /// The key's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Tenant that owns the key [default: --tenant's]
    #[arg(long = "for", value_name = "TENANT")]
    pub owner: Option<TenantId>,
    /// Catches a secret among the arguments, for an error that explains where it belongs.
    #[arg(hide = true, num_args = 0..)]
    pub misplaced: Vec<String>,
}

/// Adds a key.
#[derive(Debug, Args)]
#[command(
    after_help = "The secret is one line on stdin; at a terminal it is prompted for and hidden. It is never an
argument, because every process of the machine can read those.

Examples:
  longshore key add claude --provider anthropic < claude.key
  pass show openai | longshore key add gpt --provider openai --for acme
  longshore profile add fast --provider anthropic --model claude-haiku-5-5 --key claude"
)]
pub struct KeyAddArgs {
    #[command(flatten)]
    pub named: KeyArg,
    /// Provider of the key, for people: anthropic, openai, gemini …
    #[arg(long, value_name = "P", default_value = "")]
    pub provider: String,
}

/// Replaces a key's secret.
#[derive(Debug, Args)]
#[command(after_help = "Profiles name the key, not its version: they use the new one at once.

Examples:
  longshore key rotate claude < new.key
  longshore key rotate claude --grace 0s < new.key      the old one leaked")]
pub struct KeyRotateArgs {
    #[command(flatten)]
    pub named: KeyArg,
    /// How long the previous version stays valid
    #[arg(long, value_name = "TIME", default_value = "24h")]
    pub grace: HumanDuration,
}

/// Revokes a key.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore key revoke claude
  longshore key revoke claude --version 3")]
pub struct KeyRevokeArgs {
    #[command(flatten)]
    pub named: KeyArg,
    /// Revoke only this version
    #[arg(long = "version", value_name = "N")]
    pub which: Option<u32>,
}

/// Creates the file of the master key.
#[derive(Debug, Args)]
#[command(
    after_help = "This file and the store together are enough to read every key. Keep a copy of it where the copies of the
store are not; without it no key can ever be opened again.

Examples:
  longshore key init
  longshore key init --out /etc/longshore/master.key"
)]
pub struct KeyInitArgs {
    /// File to create; it must not exist [default: vault.key_file, else longshore.key]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Re-encrypts all keys with a new master key.
#[derive(Debug, Args)]
#[command(
    after_help = "First configure both on all workers: the new one as vault.key_file, the old one in vault.older. If it is
killed midway, run it again; keys stay readable throughout.

Examples:
  longshore key init --out new.key
  longshore key rewrap --old longshore.key --new new.key"
)]
pub struct KeyRewrapArgs {
    /// Current master key: a file, credential:NAME or env:NAME
    #[arg(long, value_name = "FILE")]
    pub old: String,
    /// New master key
    #[arg(long, value_name = "FILE")]
    pub new: String,
}
