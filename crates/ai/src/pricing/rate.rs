//! Prices of tokens at one time: plain, cached, written to a cache, in a batch, in a tier.

use serde::{Deserialize, Serialize};

use crate::model_api::Answer;
use crate::pricing::{Cost, Price, PriceError};

/// Whether a question is asked directly, or through a provider's batch API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PriceMode {
    /// Directly.
    #[default]
    Direct,
    /// Through a batch API.
    Batch,
}

/// Prices of tokens. A missing cache price is that of `input`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Rate {
    /// Of questions.
    pub input: Price,
    /// Of answers.
    pub output: Price,
    /// Of tokens read from a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<Price>,
    /// Of tokens written to a cache for some minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Price>,
    /// Of tokens written to a cache for an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_long: Option<Price>,
    /// The share of all these prices in a batch: 0.5 is half. By default all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<PriceShare>,
    /// Of questions in a batch, instead of a share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_input: Option<Price>,
    /// Of answers in a batch, instead of a share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_output: Option<Price>,
    /// Other prices for certain calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<Tier>,
}

/// Other prices for long questions, for a provider's service tier, or both. They apply to all
/// tokens of such a call. A missing price is that of the rate. Of several matching tiers, one with
/// a name wins over one without, then the one with the higher bound.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tier {
    /// For questions with more tokens than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub above: Option<u64>,
    /// For answers served in the provider's tier of this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Of questions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Price>,
    /// Of answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Price>,
    /// Of tokens read from a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<Price>,
    /// Of tokens written to a cache for some minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Price>,
    /// Of tokens written to a cache for an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_long: Option<Price>,
    /// Of questions in a batch. A tier with `input` and without this has no price of its own for
    /// batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_input: Option<Price>,
    /// Of answers in a batch. A tier with `output` and without this has no price of its own for
    /// batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_output: Option<Price>,
}

/// A share of a price, from 0 to 1, exact to six decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Price", into = "Price")]
pub struct PriceShare(u32);

/// A share of 1.
const FULL_SHARE: u32 = 1_000_000;

/// The prices of one call, with its tier and mode applied.
struct EffectivePrices {
    input: Price,
    output: Price,
    cache_read: Price,
    cache_write: Price,
    cache_write_long: Price,
    share: u32,
}

impl Rate {
    /// Prices of questions and answers only.
    pub fn flat(input: Price, output: Price) -> Self {
        Self { input, output, ..Self::default() }
    }

    /// The cost of an answer.
    pub fn cost(&self, answer: &Answer, mode: PriceMode) -> Cost {
        self.effective(self.tier(answer.tokens_in, answer.tier.as_deref()), mode).cost(answer)
    }

    /// The highest possible cost of a call with so many tokens, whatever is cached and whichever
    /// tier serves it.
    pub fn at_most(&self, tokens_in: u64, tokens_out: u64, mode: PriceMode) -> Cost {
        let tiers = self.tiers.iter().filter(|tier| tier.fits_length(tokens_in)).map(Some);
        let costs = tiers.chain([None]).map(|tier| {
            let effective = self.effective(tier, mode);
            let caches = effective.cache_read.max(effective.cache_write).max(effective.cache_write_long);
            let dearest = effective.input.max(caches);
            EffectivePrices { input: dearest, ..effective }.cost(&Answer {
                tokens_in,
                tokens_out,
                ..Answer::default()
            })
        });
        costs.max().unwrap_or_default()
    }

    /// The most specific matching tier.
    fn tier(&self, tokens_in: u64, name: Option<&str>) -> Option<&Tier> {
        let fits = |tier: &&Tier| {
            tier.fits_length(tokens_in) && (tier.tier.is_none() || tier.tier.as_deref() == name)
        };
        self.tiers.iter().filter(fits).max_by_key(|tier| (tier.tier.is_some(), tier.above))
    }

    fn effective(&self, tier: Option<&Tier>, mode: PriceMode) -> EffectivePrices {
        let of = |own: fn(&Tier) -> Option<Price>| tier.and_then(own);
        let plain_input = of(|tier| tier.input).unwrap_or(self.input);
        let plain_output = of(|tier| tier.output).unwrap_or(self.output);
        let (input, output) = match mode {
            PriceMode::Direct => (plain_input, plain_output),
            PriceMode::Batch => {
                let own_input = of(|tier| tier.batch_input.or(tier.input)).or(self.batch_input);
                let own_output = of(|tier| tier.batch_output.or(tier.output)).or(self.batch_output);
                (own_input.unwrap_or(self.input), own_output.unwrap_or(self.output))
            }
        };
        let cache = |own, base: Option<Price>| of(own).or(base).unwrap_or(input);
        EffectivePrices {
            input,
            output,
            cache_read: cache(|tier| tier.cache_read, self.cache_read),
            cache_write: cache(|tier| tier.cache_write, self.cache_write),
            cache_write_long: cache(|tier| tier.cache_write_long, self.cache_write_long),
            share: self.batch.filter(|_| mode == PriceMode::Batch).map_or(FULL_SHARE, |share| share.0),
        }
    }
}

impl Tier {
    fn fits_length(&self, tokens_in: u64) -> bool {
        self.above.is_none_or(|above| tokens_in > above)
    }
}

impl EffectivePrices {
    /// Summed up in whole picos; the share is rounded once, at the end. The largest values do not
    /// overflow: 64 bits of tokens, 40 of price, 20 of share, and five summands.
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
        let whole = i128::from(FULL_SHARE);
        Cost::clamped((picos * i128::from(self.share) + whole / 2) / whole)
    }
}

fn picos_of(price: Price) -> i128 {
    i128::from(price.picos_per_token())
}

impl PriceShare {
    /// Half, which is what most providers charge in a batch.
    pub const HALF: Self = Self(FULL_SHARE / 2);
}

impl TryFrom<Price> for PriceShare {
    type Error = PriceError;

    /// A share is written like a price: a number with at most six decimals.
    fn try_from(written: Price) -> Result<Self, PriceError> {
        let part = u32::try_from(written.picos_per_token()).ok().filter(|part| *part <= FULL_SHARE);
        part.map(Self).ok_or_else(|| PriceError::NoShare(written.to_string()))
    }
}

impl From<PriceShare> for Price {
    fn from(share: PriceShare) -> Self {
        Self::from_picos(share.0)
    }
}
