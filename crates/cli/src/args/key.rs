//! `longshore key …` as typed. Secrets never are: they come on stdin.
//!
//! Names are read as plain text here and checked by the command: what clap refuses it repeats, and
//! people paste the secret itself where its name belongs.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use longshore::TenantId;

use super::operate::PageArgs;
use crate::span::Span;

/// Keep keys of providers in the vault.
#[derive(Debug, Subcommand)]
pub enum Key {
    /// Keep a key; its secret is read from stdin, or asked for
    Add(Add),
    /// Keys and their versions, without their secrets
    List {
        #[command(flatten)]
        page: PageArgs,
    },
    /// Give a key a new secret; the one before may be used for a while
    Rotate(Rotate),
    /// Let a key, or one version of it, not be used any more
    Revoke(Revoke),
    /// Make the file of the master key, which wraps all keys
    Init(Init),
    /// Wrap all keys by a new master key
    Rewrap(Rewrap),
}

/// Which key.
#[derive(Debug, Args)]
pub struct Named {
    /// The key's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Whose it is [default: --tenant's]
    #[arg(long = "for", value_name = "TENANT")]
    pub owner: Option<TenantId>,
    /// Catches a secret among the arguments, to say that it does not belong there.
    #[arg(hide = true, num_args = 0..)]
    pub misplaced: Vec<String>,
}

/// Keep a key.
#[derive(Debug, Args)]
#[command(
    after_help = "The secret is one line on stdin; at a terminal it is asked for and not shown. Arguments can be
read by every process of the machine, so it is never one.

Examples:
  longshore key add claude --provider anthropic < claude.key
  pass show openai | longshore key add gpt --provider openai --for acme
  longshore profile add fast --provider anthropic --model claude-haiku-5-5 --key claude"
)]
pub struct Add {
    #[command(flatten)]
    pub named: Named,
    /// Whose key it is, for people: anthropic, openai, gemini …
    #[arg(long, value_name = "P", default_value = "")]
    pub provider: String,
}

/// Give a key a new secret.
#[derive(Debug, Args)]
#[command(after_help = "Profiles name the key, not its version: they use the new one at once.

Examples:
  longshore key rotate claude < new.key
  longshore key rotate claude --grace 0s < new.key      the old one leaked")]
pub struct Rotate {
    #[command(flatten)]
    pub named: Named,
    /// How long the version before may still be used
    #[arg(long, value_name = "TIME", default_value = "24h")]
    pub grace: Span,
}

/// Let a key not be used any more.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore key revoke claude
  longshore key revoke claude --version 3")]
pub struct Revoke {
    #[command(flatten)]
    pub named: Named,
    /// Only this version
    #[arg(long = "version", value_name = "N")]
    pub which: Option<u32>,
}

/// Make the file of the master key.
#[derive(Debug, Args)]
#[command(
    after_help = "Whoever has this file and the store can open every key. Keep a copy of it where the copies of the
store are not; without it no key can ever be opened again.

Examples:
  longshore key init
  longshore key init --out /etc/longshore/master.key"
)]
pub struct Init {
    /// The file; it must not be there yet [default: vault.key_file, else longshore.key]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Wrap all keys by a new master key.
#[derive(Debug, Args)]
#[command(
    after_help = "First give all workers both: the new one as vault.key_file, the old one in vault.older. Killed in the
middle, it can be run again; keys can be opened all the time.

Examples:
  longshore key init --out new.key
  longshore key rewrap --old longshore.key --new new.key"
)]
pub struct Rewrap {
    /// The master key until now: a file, credential:NAME or env:NAME
    #[arg(long, value_name = "FILE")]
    pub old: String,
    /// The master key from now on
    #[arg(long, value_name = "FILE")]
    pub new: String,
}
