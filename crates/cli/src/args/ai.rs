//! Arguments of `longshore ai …`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use longshore::{HumanDuration, ProfileName, QueueName};

use super::limit::AtLeastOne;
use super::replies::RepliesArgs;

/// Ask models, and answer requests.
#[derive(Debug, Subcommand)]
pub enum AiCommand {
    /// Ask one question and print the answer as it arrives
    Ask(AskArgs),
    /// Answer requests from the queue, for all tenants, until drained or stopped
    Worker(AiWorkerArgs),
    /// Check that the providers of profiles are reachable, accept their keys, and that the models
    /// answer
    Health(HealthArgs),
    /// Estimate the cost of a batch file or of a file of requests
    Estimate(EstimateArgs),
    /// Serve /v1/chat/completions, /v1/messages and /v1/models from a tenant's profiles
    Gateway(GatewayArgs),
    /// Open, read, acknowledge and close reply queues
    Replies(RepliesArgs),
}

/// A check of providers.
#[derive(Debug, Args)]
#[command(after_help = "Each profile's model is asked for one token. These calls are billed and recorded as
any other.

Examples:
  longshore ai health
  longshore ai health fast --no-call                free requests only")]
pub struct HealthArgs {
    /// Profiles to check [default: all]
    #[arg(value_name = "PROFILE")]
    pub profiles: Vec<ProfileName>,
    /// Ask no model: check by free requests only that providers list them
    #[arg(long)]
    pub no_call: bool,
    /// Timeout of each profile's check
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub timeout: HumanDuration,
}

/// A question.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore ai ask \"What is a longshoreman?\"
  longshore ai ask --profile fast --system \"Answer in one word.\" - < question.txt
  longshore ai ask --profile fast --schema answer.schema.json \"Is 7 prime?\"")]
pub struct AskArgs {
    /// The question; `-` reads it from stdin
    #[arg(value_name = "TEXT")]
    pub prompt: String,
    /// Profile of the tenant [default: the tenant's default profile]
    #[arg(long, short, value_name = "NAME")]
    pub profile: Option<ProfileName>,
    /// System prompt
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Model to use instead of the profile's
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Maximum tokens of the answer
    #[arg(long, value_name = "N")]
    pub max_tokens: Option<AtLeastOne>,
    /// Sampling temperature, 0 for the most predictable; only if the profile's model takes one
    #[arg(long, value_name = "T")]
    pub temperature: Option<f64>,
    /// JSON Schema that the answer must match
    #[arg(long, value_name = "FILE")]
    pub schema: Option<PathBuf>,
    /// Timeout of the answer
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub timeout: HumanDuration,
    /// Submit to the queue that `longshore ai worker` answers, instead of calling the provider from
    /// here
    #[arg(long)]
    pub queue: bool,
    /// Print the answer once it is complete
    #[arg(long)]
    pub no_stream: bool,
}

/// A worker that answers requests.
#[derive(Debug, Args)]
#[command(after_help = "Requests are units of kind `ai` (docs/ai-contract.md). SIGTERM finishes
requests in flight, SIGHUP reloads profiles and keys.")]
pub struct AiWorkerArgs {
    /// Requests in flight: a number, or `auto` to adapt to what providers accept
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    pub in_flight: InFlightLimit,
    /// Maximum requests in flight with `auto`
    #[arg(long, value_name = "N", default_value = "256")]
    pub max_in_flight: AtLeastOne,
    /// Queues to claim from [default: ai]
    #[arg(long, value_name = "NAME")]
    pub queue: Vec<QueueName>,
    /// Drain and exit after this many requests, for a supervisor that restarts it
    #[arg(long, value_name = "N")]
    pub recycle_after: Option<u64>,
    /// Exit when nothing is left to do
    #[arg(long)]
    pub until_idle: bool,
    /// Maximum time of a drain
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub drain_timeout: HumanDuration,
    /// Count the worker as dead after this long without a heartbeat
    #[arg(long, value_name = "TIME")]
    pub ttl: Option<HumanDuration>,
    /// Folder of the prompts that requests name by `prompt_ref`: DIR/TENANT/REF
    #[arg(long, value_name = "DIR")]
    pub prompts: Option<PathBuf>,
}

/// How many requests are in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InFlightLimit {
    /// As many as providers accept.
    Auto,
    /// This many.
    Fixed(u32),
}

impl std::str::FromStr for InFlightLimit {
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

/// Estimates a cost.
#[derive(Debug, Args)]
pub struct EstimateArgs {
    /// Batch file, folder with one, or file with one JSON request per line
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// The gateway.
#[derive(Debug, Args)]
#[command(after_help = "`model` names one of the tenant's profiles, or PROFILE/MODEL.

Without --token-file a token is made for this run and printed once.

Examples:
  longshore ai gateway --tenant acme --token-file gateway.token
  OPENAI_BASE_URL=http://127.0.0.1:7718/v1 OPENAI_API_KEY=$(cat gateway.token) python3 app.py")]
pub struct GatewayArgs {
    /// Address to listen on
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7718")]
    pub listen: SocketAddr,
    /// File with the token that clients must send, readable by its owner only
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Serve every user of this machine without a token; requests through a proxy are rejected
    #[arg(long, conflicts_with = "token_file")]
    pub no_auth: bool,
    /// Listen on an address other than loopback without TLS: a proxy in front terminates it
    #[arg(long)]
    pub no_tls: bool,
}
