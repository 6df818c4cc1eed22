//! What tokens of each kind cost, on a given day: plain, cached, written to a cache, in a batch, in a
//! tier of their own.

use serde::{Deserialize, Serialize};

use crate::ask::Answer;
use crate::cost::Cost;
use crate::price::{Price, PriceError};

/// Whether a question was asked by itself, or with many others through a provider's batch API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// By itself.
    #[default]
    Direct,
    /// In a provider's batch.
    Batch,
}

/// What tokens cost. A price that is not said is that of `input`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Rate {
    /// Of questions.
    pub input: Price,
    /// Of answers.
    pub output: Price,
    /// Of what is read from a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<Price>,
    /// Of what is written to a cache for some minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Price>,
    /// Of what is written to a cache for an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_long: Option<Price>,
    /// The part of all these that is paid in a batch: 0.5 is half. All of it, unless it is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<Share>,
    /// Of questions in a batch, in the place of a part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_input: Option<Price>,
    /// Of answers in a batch, in the place of a part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_output: Option<Price>,
    /// Other prices for certain calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<Tier>,
}

/// Other prices for long questions, for a provider's service tier, or both. They hold for all tokens of
/// such a call. What a tier does not say is as without it; of several that fit, the one with a name is
/// taken before the one without, and then the one with the higher bound.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tier {
    /// For questions of more tokens than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub above: Option<u64>,
    /// For answers that were served in the provider's tier of this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Of questions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Price>,
    /// Of answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Price>,
    /// Of what is read from a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<Price>,
    /// Of what is written to a cache for some minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Price>,
    /// Of what is written to a cache for an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_long: Option<Price>,
    /// Of questions in a batch. A tier that says `input` and not this has no price of its own for
    /// batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_input: Option<Price>,
    /// Of answers in a batch; likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_output: Option<Price>,
}

/// A part of a price, from nothing to all of it, exact to six decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Price", into = "Price")]
pub struct Share(u32);

/// All of it.
const WHOLE: u32 = 1_000_000;

/// What the tokens of one call cost, all choices made.
struct Chosen {
    input: Price,
    output: Price,
    cache_read: Price,
    cache_write: Price,
    cache_write_long: Price,
    share: u32,
}

impl Rate {
    /// Questions and answers, and nothing else said.
    pub fn flat(input: Price, output: Price) -> Self {
        Self { input, output, ..Self::default() }
    }

    /// What an answer cost.
    pub fn cost(&self, answer: &Answer, mode: Mode) -> Cost {
        self.chosen(self.tier(answer.tokens_in, answer.tier.as_deref()), mode).cost(answer)
    }

    /// The most that a call of so many tokens can cost, however much of it is cached, and in
    /// whatever tier it is served.
    pub fn at_most(&self, tokens_in: u64, tokens_out: u64, mode: Mode) -> Cost {
        let tiers = self.tiers.iter().filter(|tier| tier.fits_length(tokens_in)).map(Some);
        let costs = tiers.chain([None]).map(|tier| {
            let chosen = self.chosen(tier, mode);
            let caches = chosen.cache_read.max(chosen.cache_write).max(chosen.cache_write_long);
            let dearest = chosen.input.max(caches);
            Chosen { input: dearest, ..chosen }.cost(&Answer {
                tokens_in,
                tokens_out,
                ..Answer::default()
            })
        });
        costs.max().unwrap_or_default()
    }

    /// Of the tiers that fit, the most particular.
    fn tier(&self, tokens_in: u64, name: Option<&str>) -> Option<&Tier> {
        let fits = |tier: &&Tier| {
            tier.fits_length(tokens_in) && (tier.tier.is_none() || tier.tier.as_deref() == name)
        };
        self.tiers.iter().filter(fits).max_by_key(|tier| (tier.tier.is_some(), tier.above))
    }

    fn chosen(&self, tier: Option<&Tier>, mode: Mode) -> Chosen {
        let of = |own: fn(&Tier) -> Option<Price>| tier.and_then(own);
        let plain_input = of(|tier| tier.input).unwrap_or(self.input);
        let plain_output = of(|tier| tier.output).unwrap_or(self.output);
        let (input, output) = match mode {
            Mode::Direct => (plain_input, plain_output),
            Mode::Batch => {
                let own_input = of(|tier| tier.batch_input.or(tier.input)).or(self.batch_input);
                let own_output = of(|tier| tier.batch_output.or(tier.output)).or(self.batch_output);
                (own_input.unwrap_or(self.input), own_output.unwrap_or(self.output))
            }
        };
        let cache = |own, base: Option<Price>| of(own).or(base).unwrap_or(input);
        Chosen {
            input,
            output,
            cache_read: cache(|tier| tier.cache_read, self.cache_read),
            cache_write: cache(|tier| tier.cache_write, self.cache_write),
            cache_write_long: cache(|tier| tier.cache_write_long, self.cache_write_long),
            share: self.batch.filter(|_| mode == Mode::Batch).map_or(WHOLE, |share| share.0),
        }
    }
}

impl Tier {
    fn fits_length(&self, tokens_in: u64) -> bool {
        self.above.is_none_or(|above| tokens_in > above)
    }
}

impl Chosen {
    /// Added up in whole picos; a part that is paid is rounded once, at the end. The largest numbers
    /// there are do not overflow: 64 bits of tokens, 40 of price, 20 of share, and five summands.
    fn cost(&self, answer: &Answer) -> Cost {
        let Answer { tokens_cached, tokens_cache_write, tokens_cache_write_long, .. } = *answer;
        let cached = [tokens_cached, tokens_cache_write, tokens_cache_write_long];
        let plain = cached.iter().fold(answer.tokens_in, |left, part| left.saturating_sub(*part));
        let picos = [
            (plain, self.input),
            (answer.tokens_out, self.output),
            (tokens_cached, self.cache_read),
            (tokens_cache_write, self.cache_write),
            (tokens_cache_write_long, self.cache_write_long),
        ];
        let picos = picos.iter().map(|(n, price)| i128::from(*n) * picos_of(*price)).sum::<i128>();
        let whole = i128::from(WHOLE);
        Cost::clamped((picos * i128::from(self.share) + whole / 2) / whole)
    }
}

fn picos_of(price: Price) -> i128 {
    i128::from(price.picos_per_token())
}

impl Share {
    /// Half of it, which is what most providers ask in a batch.
    pub const HALF: Self = Self(WHOLE / 2);
}

impl TryFrom<Price> for Share {
    type Error = PriceError;

    /// A part is written as a price is: a number with at most six decimals.
    fn try_from(written: Price) -> Result<Self, PriceError> {
        let part = u32::try_from(written.picos_per_token()).ok().filter(|part| *part <= WHOLE);
        part.map(Self).ok_or_else(|| PriceError::NoShare(written.to_string()))
    }
}

impl From<Share> for Price {
    fn from(share: Share) -> Self {
        Self::from_picos(share.0)
    }
}
