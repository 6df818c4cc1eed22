//! Arguments of `longshore mail …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use longshore::{HumanDuration, Priority};
use longshore_batch::definition::MailMode;
use longshore_mail::spool::Share;

use super::batch::BatchFileArgs;
use crate::config::RendererName;

/// Compile MJML, spool mail and send it.
#[derive(Debug, Subcommand)]
pub enum MailCommand {
    /// Compile a template, or all templates of a folder, to HTML
    Compile(MailCompileArgs),
    /// Render every template of a folder with both renderers and list the differences
    Check(MailCheckArgs),
    /// Add a message to the spool
    Spool(Box<MailSpoolArgs>),
    /// Spool mail for the rows of a batch file, once per row and period
    Digest(Box<MailDigestArgs>),
    /// Send spooled mail that is due
    Send(MailSendArgs),
    /// Show the spool's statistics
    Stats {
        /// Exit with code 3 unless the spool is healthy
        #[arg(long)]
        check: bool,
    },
    /// List failed messages with recipient and reason, newest first
    Failures {
        /// Maximum number of messages
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        limit: usize,
    },
    /// Retry failed messages with fresh attempts
    Retry {
        /// Key of the message, as it was given or as `mail failures`, logs and files show it
        #[arg(required_unless_present = "all")]
        key: Option<String>,
        /// Retry all failed messages
        #[arg(long, conflicts_with = "key")]
        all: bool,
    },
}

/// Compiles templates.
#[derive(Debug, Args)]
#[command(after_help = "In a folder, files that begin with _ are partials and left out.

Examples:
  longshore mail compile welcome.mjml > welcome.html
  longshore mail compile templates -o public --renderer reference")]
pub struct MailCompileArgs {
    /// Template, or a folder of templates
    pub path: PathBuf,
    /// Output: a file, or a folder for a folder [default: stdout, or beside the templates]
    #[arg(long, short, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// Renderer: embedded, reference, or the http:// address of a server [default: the
    /// configuration's]
    #[arg(long, value_name = "RENDERER")]
    pub renderer: Option<RendererName>,
    /// Folder to include from, beside the template's own
    #[arg(long = "include", value_name = "DIR")]
    pub includes: Vec<PathBuf>,
}

/// Compares the renderers.
#[derive(Debug, Args)]
pub struct MailCheckArgs {
    /// Folder of templates, or one template
    pub path: PathBuf,
    /// List every difference, not only the first few
    #[arg(long)]
    pub all: bool,
    /// Folder to include from, beside the template's own
    #[arg(long = "include", value_name = "DIR")]
    pub includes: Vec<PathBuf>,
}

/// Spools a message.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore mail spool welcome.mjml --key welcome/4711 --from 'The Shop <shop@example.org>' \\
    --to ann@example.org --subject Welcome")]
pub struct MailSpoolArgs {
    /// File with the page: HTML, or MJML by its extension
    pub page: PathBuf,
    /// Deduplication key: per key, one message is sent
    #[arg(long)]
    pub key: String,
    /// Sender
    #[arg(long, value_name = "ADDRESS")]
    pub from: String,
    /// Recipient (may be repeated)
    #[arg(long, value_name = "ADDRESS", required = true)]
    pub to: Vec<String>,
    /// Subject
    #[arg(long, value_name = "TEXT")]
    pub subject: String,
    /// File with the text version [default: made from the page]
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// Address for bounces [default: --from]
    #[arg(long, value_name = "ADDRESS")]
    pub bounces_to: Option<String>,
    /// Send after this long
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub after: HumanDuration,
    /// Priority among due messages: high, normal, low or 1 to 9
    #[arg(long, value_name = "PRIORITY", default_value_t = Priority::NORMAL)]
    pub priority: Priority,
}

/// Spools the mail of a digest.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore mail digest examples/digest --folder out          the folder with batch.toml, or the file
  longshore mail digest nightly.toml --mode immediate --daemon
  longshore mail digest nightly.toml --mod 4 --val 0          a quarter of the users: :mod and :val

Run again after a crash or Ctrl-C, it resumes the unfinished batch of the same file where it stopped. Each
user gets one message per period, however often it is run.")]
pub struct MailDigestArgs {
    #[command(flatten)]
    pub file: BatchFileArgs,
    /// Mode: daily or immediate [default: the file's]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub mode: Option<MailMode>,
    /// Only users with a number that modulo this is --val: the value of `:mod` in the candidates' SQL
    #[arg(long = "mod", value_name = "N", requires = "val")]
    pub modulus: Option<u64>,
    /// Value of `:val` in the candidates' SQL
    #[arg(long, value_name = "N", requires = "modulus")]
    pub val: Option<u64>,
    /// Show the SQL, the count and three messages; send and change nothing
    #[arg(long, conflicts_with = "daemon")]
    pub dry_run: bool,
    /// Run until stopped
    #[arg(long)]
    pub daemon: bool,
    /// With --daemon: interval between checks for due recipients
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub every: HumanDuration,
    /// Write due mail as .eml files into this folder, instead of leaving it to `mail send`
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

fn mode(text: &str) -> Result<MailMode, String> {
    [MailMode::Daily, MailMode::Immediate]
        .into_iter()
        .find(|mode| mode.as_str() == text)
        .ok_or_else(|| "expected daily or immediate".to_owned())
}

/// Sends spooled mail.
#[derive(Debug, Args)]
pub struct MailSendArgs {
    /// Run until stopped, instead of until nothing is due
    #[arg(long)]
    pub daemon: bool,
    /// Send only this share of the messages, as 0/4 to 3/4: for several concurrent senders
    #[arg(long, value_name = "SHARE", default_value = "0/1")]
    pub share: Share,
    /// Write .eml files into this folder instead of sending
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
}
