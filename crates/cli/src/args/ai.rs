//! `longshore ai …` as typed.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use longshore::{ProfileName, QueueName};

use super::limit::AtLeastOne;
use crate::span::Span;

/// Ask models, and answer requests.
#[derive(Debug, Subcommand)]
pub enum Ai {
    /// Ask one question and print the answer as it comes
    Ask(Ask),
    /// Answer requests from the queue, for all tenants, until drained or stopped
    Worker(AiWorker),
    /// Say whether the providers of profiles can be reached and accept their keys
    Health {
        /// Which profiles; none means all
        #[arg(value_name = "PROFILE")]
        profiles: Vec<ProfileName>,
    },
    /// Say what a batch file, or a file of requests, would cost
    Estimate(Estimate),
    /// Serve /v1/chat/completions, /v1/messages and /v1/models, by a tenant's profiles
    Gateway(Gateway),
}

/// A question.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore ai ask \"What is a longshoreman?\"
  longshore ai ask --profile fast --system \"Answer in one word.\" - < question.txt
  longshore ai ask --profile fast --schema answer.schema.json \"Is 7 prime?\"")]
pub struct Ask {
    /// The question; `-` reads it from stdin
    #[arg(value_name = "TEXT")]
    pub prompt: String,
    /// The tenant's profile; without one, its default
    #[arg(long, short, value_name = "NAME")]
    pub profile: Option<ProfileName>,
    /// What the model is told about its role
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Another model than the profile's
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Most tokens of the answer
    #[arg(long, value_name = "N")]
    pub max_tokens: Option<AtLeastOne>,
    /// 0 is the most predictable; only where the profile says that its model takes it
    #[arg(long, value_name = "T")]
    pub temperature: Option<f64>,
    /// A JSON Schema that the answer has to follow
    #[arg(long, value_name = "FILE")]
    pub schema: Option<PathBuf>,
    /// How long the answer may take
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub timeout: Span,
    /// Send it to the queue that `longshore ai worker` answers, instead of asking from here
    #[arg(long)]
    pub queue: bool,
    /// Print the answer when it is whole
    #[arg(long)]
    pub no_stream: bool,
}

/// A worker that answers requests.
#[derive(Debug, Args)]
#[command(
    after_help = "Requests are units of kind `ai` (docs/ai-contract.md). SIGTERM finishes what is
in flight, SIGHUP reads profiles and keys anew."
)]
pub struct AiWorker {
    /// Requests in flight: a number, or `auto` to find out what providers take
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    pub in_flight: InFlight,
    /// Most requests in flight with `auto`
    #[arg(long, value_name = "N", default_value = "256")]
    pub most: AtLeastOne,
    /// Queues taken from [default: ai]
    #[arg(long, value_name = "NAME")]
    pub queue: Vec<QueueName>,
    /// End in good order after so many requests, for whoever starts it again
    #[arg(long, value_name = "N")]
    pub recycle_after: Option<u64>,
    /// End when there is nothing left to do
    #[arg(long)]
    pub until_idle: bool,
    /// How long a drain may take
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub drain_timeout: Span,
    /// Without a sign of life for this long it counts as dead
    #[arg(long, value_name = "TIME")]
    pub ttl: Option<Span>,
    /// Where prompts are that requests refer to by `prompt_ref`: DIR/TENANT/REF
    #[arg(long, value_name = "DIR")]
    pub prompts: Option<PathBuf>,
}

/// How many requests in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InFlight {
    /// What providers take.
    Auto,
    /// So many.
    Fixed(u32),
}

impl std::str::FromStr for InFlight {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            number => match number.parse() {
                Ok(n) if n > 0 => Ok(Self::Fixed(n)),
                _ => Err("a number from 1 on, or `auto`".to_owned()),
            },
        }
    }
}

/// What something would cost.
#[derive(Debug, Args)]
pub struct Estimate {
    /// A batch file, a folder with one, or a file with one request as JSON per line
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// The gateway.
#[derive(Debug, Args)]
#[command(after_help = "`model` names one of the tenant's profiles, or PROFILE/MODEL.

Examples:
  longshore ai gateway --tenant acme --token-file gateway.token
  OPENAI_BASE_URL=http://127.0.0.1:7718/v1 OPENAI_API_KEY=$(cat gateway.token) python3 app.py")]
pub struct Gateway {
    /// Where to listen; other addresses than loopback need a token
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7718")]
    pub listen: SocketAddr,
    /// A file with the token that callers must send, readable by nobody else
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}
