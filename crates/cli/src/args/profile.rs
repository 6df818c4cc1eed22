//! `longshore profile …` as typed. What it makes of a profile's document is in
//! [`crate::commands`]`::profile`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use longshore::ProfileName;
use longshore_ai::Price;

use super::limit::{AtLeastOne, Limit};
use super::operate::PageArgs;
use crate::money::Tokens;

/// Say who is asked, with which model and key, at what price, within which limits.
#[derive(Debug, Subcommand)]
pub enum Profile {
    /// Make a profile
    Add(Box<Written>),
    /// Profiles
    List {
        #[command(flatten)]
        page: PageArgs,
    },
    /// One profile: what it says, and what its templates say
    Show(Named),
    /// Change a profile; what is not named stays
    Set(Box<Changed>),
    /// Look whether a profile works: its document, its key, its provider
    Test(Test),
    /// Let nobody use it; what is under way may end
    Suspend(Named),
    /// Let it be used again
    Resume(Named),
    /// Forget it
    Remove(Named),
    /// Which profile is used where none is named
    Default(DefaultProfile),
    /// What all profiles of the tenant together may ask
    Limits(Box<TenantLimits>),
}

/// One profile.
#[derive(Debug, Args)]
pub struct Named {
    /// The profile
    #[arg(value_name = "NAME")]
    pub name: ProfileName,
}

/// A profile to be made.
#[derive(Debug, Args)]
#[command(
    after_help = "The key is a reference: the name of one in the vault (`longshore key add`), env:NAME or file:PATH.
Prices are dollars per million tokens. `--set` reaches every part of the document, as
--set wire.num_ctx=8192; docs/ai-profiles.md has them all.

Examples:
  longshore profile add fast --provider anthropic --model claude-haiku-5-5 --key claude \\
      --price-input 0.1 --price-output 0.5 --rpm 1000 --tpm 2M --fallback local
  longshore profile add local --provider ollama --model llama3 --in-flight 1
  longshore profile add house --template --provider openai --key gpt --rpm 500
  longshore profile add draft --extends house --model gpt-mini --tenant acme
  longshore profile add fast --from fast.toml"
)]
pub struct Written {
    #[command(flatten)]
    pub named: Named,
    /// Read the document from a .toml or .json file; what else is typed goes on top of it
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// It is there to be extended, not to be used
    #[arg(long)]
    pub template: bool,
    #[command(flatten)]
    pub parts: Parts,
}

/// A profile to be changed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore profile set fast --model claude-haiku-6 --price-input 0.12
  longshore profile set fast --rpm none --fallback local --fallback other
  longshore profile set fast --unset system --set wire.cache=1h")]
pub struct Changed {
    #[command(flatten)]
    pub named: Named,
    /// Leave this part of the document out, as `system` or `limits.burst`
    #[arg(long, value_name = "PATH")]
    pub unset: Vec<String>,
    #[command(flatten)]
    pub parts: Parts,
}

/// Parts of a profile's document.
///
/// The provider, the endpoint and the key are plain text here: what clap refuses it repeats, and a
/// secret is easily pasted there.
#[derive(Debug, Default, Args)]
pub struct Parts {
    /// Who answers: anthropic, openai (and whatever speaks the same), ollama, gemini, echo, scripted
    #[arg(long, value_name = "P")]
    pub provider: Option<String>,
    /// Which model is asked
    #[arg(long, value_name = "M")]
    pub model: Option<String>,
    /// Where the provider is, if not at its own address
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// Where its key is: a key of the vault, env:NAME or file:PATH
    #[arg(long, value_name = "REF")]
    pub key: Option<String>,
    /// What the model is told about its role, where the question does not say
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Most tokens of an answer, where the question does not say
    #[arg(long, value_name = "N")]
    pub max_tokens: Option<AtLeastOne>,
    /// `scripted`: the file of the script, which is read into the profile
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// Whom to ask where this one cannot answer; may be given several times, in this order
    #[arg(long, value_name = "NAME")]
    pub fallback: Vec<ProfileName>,
    /// The template that says what this profile does not
    #[arg(long, value_name = "TEMPLATE")]
    pub extends: Option<ProfileName>,
    /// Any part of the document, as wire.sampling=true; the value is JSON, or else text
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    // Last: what follows would stand under their headings.
    #[command(flatten)]
    pub prices: Prices,
    #[command(flatten)]
    pub limits: Limits,
}

/// Dollars per million tokens.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Prices, in dollars per million tokens")]
pub struct Prices {
    /// Of questions
    #[arg(long, value_name = "USD")]
    pub price_input: Option<Price>,
    /// Of answers
    #[arg(long, value_name = "USD")]
    pub price_output: Option<Price>,
    /// Of what is read from a cache [default: as of questions]
    #[arg(long, value_name = "USD")]
    pub price_cache_read: Option<Price>,
    /// Of what is written to a cache for minutes [default: as of questions]
    #[arg(long, value_name = "USD")]
    pub price_cache_write: Option<Price>,
    /// Of what is written to a cache for an hour [default: as of questions]
    #[arg(long, value_name = "USD")]
    pub price_cache_write_long: Option<Price>,
    /// The part of all these that is paid in a provider's batch, as 0.5
    #[arg(long, value_name = "PART")]
    pub price_batch: Option<Price>,
}

/// How much may be asked.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Limits")]
pub struct Limits {
    /// Requests per minute, or none
    #[arg(long, value_name = "N|none")]
    pub rpm: Option<Limit<Tokens>>,
    /// Tokens per minute, questions and answers together, as 2M, or none
    #[arg(long, value_name = "N|none")]
    pub tpm: Option<Limit<Tokens>>,
    /// How many questions may be out at once in each process, or none
    #[arg(long, value_name = "N|none")]
    pub in_flight: Option<Limit<AtLeastOne>>,
    /// How many minutes' worth may be used at once after a rest, or none [default: a second's]
    #[arg(long, value_name = "MINUTES|none")]
    pub burst: Option<Limit<f64>>,
    /// What becomes of a question that finds no room
    #[arg(long, value_name = "WHAT")]
    pub when_full: Option<WhenFull>,
}

/// What becomes of a question that finds no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WhenFull {
    /// It waits, as long as its deadline lets it.
    Wait,
    /// It is refused at once.
    Refuse,
}

impl WhenFull {
    /// Its name in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Refuse => "refuse",
        }
    }
}

/// Look whether a profile works.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore profile test fast                       its document, its key, its provider
  longshore profile test fast --offline             its document and its key
  longshore profile test fast --ask                 one tiny question, which may cost something")]
pub struct Test {
    #[command(flatten)]
    pub named: Named,
    /// Ask one tiny question; it is written in the books as any other
    #[arg(long)]
    pub ask: bool,
    /// Read the document and open the key, and leave the provider in peace
    #[arg(long, conflicts_with = "ask")]
    pub offline: bool,
}

/// Which profile is used where none is named.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore profile default fast
  longshore profile default none
  longshore profile default                         which it is")]
pub struct DefaultProfile {
    /// The profile, or none; shown without
    #[arg(value_name = "NAME|none")]
    pub name: Option<Limit<ProfileName>>,
}

/// What all profiles of the tenant together may ask.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  longshore profile limits --tenant acme --rpm 600 --tpm 1M --when-full refuse
  longshore profile limits --tenant acme            what they are")]
pub struct TenantLimits {
    /// Whom to ask where a profile and its own fallbacks cannot answer, or none
    #[arg(long, value_name = "NAME|none")]
    pub fallback: Option<Limit<ProfileName>>,
    #[command(flatten)]
    pub limits: Limits,
}
