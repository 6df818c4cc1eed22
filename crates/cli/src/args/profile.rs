//! Arguments of `longshore profile …`. [`crate::commands`]`::profile` turns them into a profile's
//! document.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use longshore::{HumanDuration, ProfileName};
use longshore_ai::Price;

use super::limit::{AtLeastOne, LimitArg};
use super::unit_worker::PageArgs;
use crate::amount_args::TokenCount;

/// Configure providers, models, keys, prices and limits.
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Add a profile
    Add(Box<ProfileAddArgs>),
    /// List profiles
    List {
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one profile: its own fields, and the fields inherited from its templates
    Show(ProfileArg),
    /// Change a profile; fields that are not named stay
    Set(Box<ProfileSetArgs>),
    /// Test a profile: its document, its key, its provider
    Test(ProfileTestArgs),
    /// Suspend a profile; requests in flight may finish
    Suspend(ProfileArg),
    /// Resume a profile
    Resume(ProfileArg),
    /// Remove a profile
    Remove(ProfileArg),
    /// Set the profile that is used where none is named
    Default(DefaultProfileArgs),
    /// Limit all profiles of the tenant together
    Limits(Box<TenantLimitArgs>),
}

/// One profile.
#[derive(Debug, Args)]
pub struct ProfileArg {
    /// Name of the profile
    #[arg(value_name = "NAME")]
    pub name: ProfileName,
}

/// Adds a profile.
#[derive(Debug, Args)]
#[command(
    after_help = "The key is a reference: the name of one in the vault (`longshore key add`), env:NAME or file:PATH.
Prices are dollars per million tokens; `longshore price list` shows the models that need none.
`--set` reaches every part of the document, as --set wire.num_ctx=8192; docs/ai-profiles.md lists
them all.

Examples:
  longshore profile add fast --provider anthropic --model claude-haiku-5-5 --key claude \\
      --rpm 1000 --tpm 2M --fallback local
  longshore profile add local --provider ollama --model llama3 --in-flight 1
  longshore profile add inside --provider openai --model qwen --endpoint https://llm.corp.example \\
      --proxy http://proxy.corp.example:3128 --proxy-key proxy --ca-file corp-ca.pem
  longshore profile add house --template --provider openai --key gpt --model gpt-mini \\
      --price-input 1 --price-output 4 --also-model gpt-large=5/20
  longshore profile add draft --extends house --model gpt-large --tenant acme
  longshore profile add fast --from fast.toml"
)]
pub struct ProfileAddArgs {
    #[command(flatten)]
    pub named: ProfileArg,
    /// Read the document from a .toml or .json file; the other options override its fields
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Make it a template: it can be extended, not used
    #[arg(long)]
    pub template: bool,
    #[command(flatten)]
    pub parts: ProfileFields,
}

/// Changes a profile.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore profile set fast --model claude-haiku-6 --price-input 0.12
  longshore profile set fast --rpm none --fallback local --fallback other
  longshore profile set fast --unset system --set wire.cache=1h")]
pub struct ProfileSetArgs {
    #[command(flatten)]
    pub named: ProfileArg,
    /// Remove this field of the document, as `system` or `limits.burst`
    #[arg(long, value_name = "PATH")]
    pub unset: Vec<String>,
    #[command(flatten)]
    pub parts: ProfileFields,
}

/// Fields of a profile's document.
///
/// The provider, the endpoint and the key are plain text here: clap repeats a rejected value in its
/// error, and users may paste a secret there.
#[derive(Debug, Default, Args)]
pub struct ProfileFields {
    /// Provider: anthropic, openai (and compatible servers), ollama, gemini, echo, scripted
    #[arg(long, value_name = "P")]
    pub provider: Option<String>,
    /// Model to use
    #[arg(long, value_name = "M")]
    pub model: Option<String>,
    /// Further model that requests may name, as large=5/25: dollars per million tokens in and out
    /// [default: those of `longshore price list`, else of --model]; * is every model; may be repeated
    #[arg(long, value_name = "M[=IN/OUT]")]
    pub also_model: Vec<FurtherModel>,
    /// Address of the provider, if not its own
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// Reference to the key: a key of the vault, env:NAME or file:PATH
    #[arg(long, value_name = "REF")]
    pub key: Option<String>,
    /// HTTP proxy that connections are tunnelled through, as http://proxy.example:3128
    #[arg(long, value_name = "URL")]
    pub proxy: Option<String>,
    /// Reference to USER:PASSWORD of the proxy: a key of the vault, env:NAME or file:PATH
    #[arg(long, value_name = "REF")]
    pub proxy_key: Option<String>,
    /// PEM file of the certificate authorities to trust in place of the machine's, which is copied
    /// into the profile
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// System prompt of requests that have none
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Maximum tokens of the answer to requests that set none
    #[arg(long, value_name = "N")]
    pub max_tokens: Option<AtLeastOne>,
    /// With `scripted`: file of the script, which is copied into the profile
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// Profile to use if this one cannot answer; may be repeated, in order of preference
    #[arg(long, value_name = "NAME")]
    pub fallback: Vec<ProfileName>,
    /// Template that supplies the fields this profile does not have
    #[arg(long, value_name = "TEMPLATE")]
    pub extends: Option<ProfileName>,
    /// Any field of the document, as wire.sampling=true; the value is JSON, or else text
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    // Last: options that follow would be listed under their headings.
    #[command(flatten)]
    pub prices: PriceArgs,
    #[command(flatten)]
    pub limits: RateLimitArgs,
    #[command(flatten)]
    pub retry: RetryArgs,
}

/// A further model, and its prices of input and output tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct FurtherModel {
    /// The model.
    pub name: String,
    /// Its prices; those of the profile without.
    pub prices: Option<(Price, Price)>,
}

impl FromStr for FurtherModel {
    type Err = String;

    /// Splits at the last `=`: names of models may hold one.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, prices) = match text.rsplit_once('=') {
            Some((name, prices)) => (name, Some(prices)),
            None => (text, None),
        };
        if name.is_empty() {
            return Err("the model has no name".to_owned());
        }
        let prices = prices.map(|prices| {
            let (input, output) = prices.split_once('/').ok_or("prices are IN/OUT, as 5/25")?;
            let price = |text: &str| text.parse::<Price>().map_err(|error| error.to_string());
            Ok::<_, String>((price(input)?, price(output)?))
        });
        Ok(Self { name: name.to_owned(), prices: prices.transpose()? })
    }
}

/// Dollars per million tokens.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Prices, in dollars per million tokens")]
pub struct PriceArgs {
    /// Price of input tokens
    #[arg(long, value_name = "USD")]
    pub price_input: Option<Price>,
    /// Price of output tokens
    #[arg(long, value_name = "USD")]
    pub price_output: Option<Price>,
    /// Price of tokens read from a cache [default: --price-input]
    #[arg(long, value_name = "USD")]
    pub price_cache_read: Option<Price>,
    /// Price of tokens written to a cache for minutes [default: --price-input]
    #[arg(long, value_name = "USD")]
    pub price_cache_write: Option<Price>,
    /// Price of tokens written to a cache for an hour [default: --price-input]
    #[arg(long, value_name = "USD")]
    pub price_cache_write_long: Option<Price>,
    /// Factor of all prices in a provider's batch, as 0.5
    #[arg(long, value_name = "PART")]
    pub price_batch: Option<Price>,
}

/// Rate limits.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Limits")]
pub struct RateLimitArgs {
    /// Requests per minute, or none
    #[arg(long, value_name = "N|none")]
    pub rpm: Option<LimitArg<TokenCount>>,
    /// Tokens per minute, input and output together, as 2M, or none
    #[arg(long, value_name = "N|none")]
    pub tpm: Option<LimitArg<TokenCount>>,
    /// Requests in flight per process, or none
    #[arg(long, value_name = "N|none")]
    pub in_flight: Option<LimitArg<AtLeastOne>>,
    /// Burst in minutes' worth of the rates, available after idle time, or none [default: a
    /// second's]
    #[arg(long, value_name = "MINUTES|none")]
    pub burst: Option<LimitArg<f64>>,
    /// Action for a request above the limits
    #[arg(long, value_name = "WHAT")]
    pub when_full: Option<WhenLimited>,
}

/// Retries.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Retries")]
pub struct RetryArgs {
    /// Attempts of a request in all, the first included [default: 5]
    #[arg(long, value_name = "N")]
    pub attempts: Option<AtLeastOne>,
    /// Longest wait before the second attempt, doubled for each further one [default: 1s]
    #[arg(long, value_name = "TIME")]
    pub retry_base: Option<HumanDuration>,
    /// Longest time without a byte from the provider, before its answer begins and while it arrives
    /// [default: the deadline, then 2m]
    #[arg(long, value_name = "TIME")]
    pub idle_timeout: Option<HumanDuration>,
}

/// Action for a request above the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WhenLimited {
    /// Wait until the request's deadline.
    Wait,
    /// Fail at once.
    Refuse,
}

impl WhenLimited {
    /// Its name in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Refuse => "refuse",
        }
    }
}

/// Tests a profile.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore profile test fast                       its document, its key, its provider
  longshore profile test fast --offline             its document and its key
  longshore profile test fast --ask                 one short question, which may cost something")]
pub struct ProfileTestArgs {
    #[command(flatten)]
    pub named: ProfileArg,
    /// Ask one short question; it is billed and recorded as any other
    #[arg(long)]
    pub ask: bool,
    /// Check the document and open the key only, without calling the provider
    #[arg(long, conflicts_with = "ask")]
    pub offline: bool,
}

/// Sets the profile that is used where none is named.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore profile default fast
  longshore profile default none
  longshore profile default                         show it")]
pub struct DefaultProfileArgs {
    /// Profile, or none to unset it; without an argument it is shown
    #[arg(value_name = "NAME|none")]
    pub name: Option<LimitArg<ProfileName>>,
}

/// Limits all profiles of the tenant together.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore profile limits --tenant acme --rpm 600 --tpm 1M --when-full refuse
  longshore profile limits --tenant acme            show them")]
pub struct TenantLimitArgs {
    /// Profile to use if a profile and its own fallbacks cannot answer, or none
    #[arg(long, value_name = "NAME|none")]
    pub fallback: Option<LimitArg<ProfileName>>,
    #[command(flatten)]
    pub limits: RateLimitArgs,
}
