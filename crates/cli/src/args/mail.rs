//! `longshore mail …` as typed.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use longshore::Priority;
use longshore_batch::definition::MailMode;
use longshore_mail::spool::Share;

use super::batch::File;
use crate::mail::RendererName;
use crate::span::Span;

/// Compile MJML, keep mail in a spool, send it.
#[derive(Debug, Subcommand)]
pub enum Mail {
    /// Make HTML of a template, or of all in a folder
    Compile(Compile),
    /// Render every template of a folder with both renderers and list what differs
    Check(Check),
    /// Put a message into the spool
    Spool(Box<Put>),
    /// Write to the rows of a batch file, once per row and period
    Digest(Box<Digest>),
    /// Send what is due
    Send(Send),
    /// How the spool stands
    Stats {
        /// End with exit code 3 unless all is well
        #[arg(long)]
        check: bool,
    },
    /// What failed, to whom and why, the latest first
    Failures {
        /// How many at most
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        limit: usize,
    },
    /// Try failures again, from the beginning
    Retry {
        /// The message's key, as it was given or as `mail failures`, logs and files write it
        #[arg(required_unless_present = "all")]
        key: Option<String>,
        /// All failures
        #[arg(long, conflicts_with = "key")]
        all: bool,
    },
}

/// Templates to compile.
#[derive(Debug, Args)]
#[command(after_help = "In a folder, files that begin with _ are parts of others and left out.

Examples:
  longshore mail compile welcome.mjml > welcome.html
  longshore mail compile templates -o public --renderer reference")]
pub struct Compile {
    /// A template, or a folder of them
    pub path: PathBuf,
    /// Where the HTML goes: a file, or a folder for a folder [default: stdout, or beside the templates]
    #[arg(long, short, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// embedded, reference, or the http:// address of a server [default: the configuration's]
    #[arg(long, value_name = "RENDERER")]
    pub renderer: Option<RendererName>,
    /// A folder to include from, beside the template's own
    #[arg(long = "include", value_name = "DIR")]
    pub includes: Vec<PathBuf>,
}

/// Templates to compare.
#[derive(Debug, Args)]
pub struct Check {
    /// A folder of templates, or one of them
    pub path: PathBuf,
    /// List everything that differs, not the first few
    #[arg(long)]
    pub all: bool,
    /// A folder to include from, beside the template's own
    #[arg(long = "include", value_name = "DIR")]
    pub includes: Vec<PathBuf>,
}

/// A message.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore mail spool welcome.mjml --key welcome/4711 --from 'The Shop <shop@example.org>' \\
    --to ann@example.org --subject Welcome")]
pub struct Put {
    /// The page: a file of HTML, or of MJML by its name's end
    pub page: PathBuf,
    /// What it is about: of one key, one message is sent
    #[arg(long)]
    pub key: String,
    /// From whom
    #[arg(long, value_name = "ADDRESS")]
    pub from: String,
    /// To whom; may be said more than once
    #[arg(long, value_name = "ADDRESS", required = true)]
    pub to: Vec<String>,
    /// About what
    #[arg(long, value_name = "TEXT")]
    pub subject: String,
    /// The same as text [default: made from the page]
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Where bounces go [default: --from]
    #[arg(long, value_name = "ADDRESS")]
    pub bounces_to: Option<String>,
    /// Not before so long from now
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub after: Span,
    /// Its place among those that are due: high, normal, low or 1 to 9
    #[arg(long, value_name = "PRIORITY", default_value_t = Priority::NORMAL)]
    pub priority: Priority,
}

/// Whom to write to.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore mail digest examples/digest --folder out          the folder with batch.toml, or the file
  longshore mail digest nightly.toml --mode immediate --daemon
  longshore mail digest nightly.toml --mod 4 --val 0          a quarter of the users: :mod and :val

Run again after a crash or Ctrl-C, it takes up the unfinished batch of the same file where it stopped; of
one user and period there is one message, however often it is run.")]
pub struct Digest {
    #[command(flatten)]
    pub file: File,
    /// daily or immediate [default: the file's]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub mode: Option<MailMode>,
    /// Only users whose number leaves --val when divided by this: what `:mod` of the candidates' SQL is
    #[arg(long = "mod", value_name = "N", requires = "val")]
    pub modulus: Option<u64>,
    /// What `:val` of the candidates' SQL is
    #[arg(long, value_name = "N", requires = "modulus")]
    pub val: Option<u64>,
    /// Show the SQL, the count and three messages; keep and change nothing
    #[arg(long, conflicts_with = "daemon")]
    pub dry_run: bool,
    /// Go on until told to stop
    #[arg(long)]
    pub daemon: bool,
    /// With --daemon: how often it is looked who is due
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub every: Span,
    /// Then write what is due as .eml files into this folder, instead of leaving it to `mail send`
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

fn mode(text: &str) -> Result<MailMode, String> {
    [MailMode::Daily, MailMode::Immediate]
        .into_iter()
        .find(|mode| mode.as_str() == text)
        .ok_or_else(|| "it is daily or immediate".to_owned())
}

/// How to send.
#[derive(Debug, Args)]
pub struct Send {
    /// Go on until told to stop, instead of until nothing is due
    #[arg(long)]
    pub daemon: bool,
    /// Only this share of the messages, as 0/4 to 3/4: for several senders at once
    #[arg(long, value_name = "SHARE", default_value = "0/1")]
    pub share: Share,
    /// Write .eml files into this folder instead of sending
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
}
