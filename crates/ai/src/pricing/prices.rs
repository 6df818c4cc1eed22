//! A model's prices: the default ones, and dated ones, so that a price change can be configured in
//! advance.

use longshore::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use crate::model_api::Answer;
use crate::pricing::{Cost, Price, PriceMode, PriceShare, Rate, Tier};

/// A model's prices over time. The default states no prices, and costs nothing; stated prices of
/// zero are not the default.
///
/// ```
/// use longshore_ai::{Answer, Cost, PriceMode, Prices};
/// use longshore::time::Timestamp;
///
/// let prices: Prices = serde_json::from_str(
///     r#"{ "input": 3, "output": 15, "rates": [{ "from": "2026-12-01", "input": 2, "output": 10 }] }"#,
/// ).unwrap();
/// let answer = Answer { tokens_in: 1, ..Answer::default() };
/// let cost = |day| prices.cost(&answer, Timestamp::parse(day).unwrap(), PriceMode::Direct);
/// assert_eq!(cost("2026-11-30T23:59:59Z"), Cost(3_000_000));
/// assert_eq!(cost("2026-12-01T00:00:00Z"), Cost(2_000_000));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "PricesToml")]
pub struct Prices {
    #[serde(flatten)]
    rate: Option<Rate>,
    /// Sorted by start; they do not overlap.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rates: Vec<DatedRate>,
}

/// A rate with a period of validity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DatedRate {
    /// Start, inclusive; without it, valid from the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// End, exclusive; without it, valid forever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The rate. Complete by itself: it inherits nothing from the default rate.
    #[serde(flatten)]
    pub rate: Rate,
}

/// The rate of a model without stated prices.
static FREE: Rate = Rate {
    input: Price::dollars(0),
    output: Price::dollars(0),
    cache_read: None,
    cache_write: None,
    cache_write_long: None,
    batch: None,
    batch_input: None,
    batch_output: None,
    tiers: Vec::new(),
};

/// Why prices are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PricesError {
    /// `input` or `output` is missing.
    #[error("prices need `input` and `output`, dollars per million tokens")]
    Incomplete,
    /// Both a batch share and batch prices.
    #[error("`batch` and `batch_input` or `batch_output` exclude each other")]
    TwoBatchPrices,
    /// A tier without a condition.
    #[error("a tier needs `above` (tokens of a question) or `tier` (the provider's name for it)")]
    TierForAll,
    /// Two tiers with the same condition.
    #[error("two tiers are for the same calls")]
    TierTwice,
    /// A dated rate without dates.
    #[error("one of `rates` needs `from` or `until`")]
    Undated,
    /// A rate that ends before it begins.
    #[error("a rate ends ({until}) before it begins ({from})")]
    Inverted {
        /// Its start.
        from: Timestamp,
        /// Its end.
        until: Timestamp,
    },
    /// Two rates for the same time.
    #[error("two rates hold at {0}: let one end where the other begins")]
    Overlap(Timestamp),
    /// Dates outside of `rates`, or `rates` inside of one.
    #[error("`from` and `until` belong into `rates`, and `rates` not into one of them")]
    Misplaced,
    /// Neither a day nor a time.
    #[error("`{0}` is neither a day, as 2026-12-01, nor a time, as 2026-12-01T00:00:00Z")]
    NoTime(String),
}

impl Prices {
    /// One price for questions and one for answers, always.
    pub fn flat(input: Price, output: Price) -> Self {
        Self { rate: Some(Rate::flat(input, output)), rates: Vec::new() }
    }

    /// A default rate and dated rates.
    pub fn new(rate: Rate, mut rates: Vec<DatedRate>) -> Result<Self, PricesError> {
        rates.iter().map(|dated| &dated.rate).chain([&rate]).try_for_each(check)?;
        rates.iter().try_for_each(DatedRate::check)?;
        rates.sort_by_key(|dated| dated.from);
        for pair in rates.windows(2) {
            let begin = pair[1].from.unwrap_or(Timestamp::ZERO);
            if pair[1].from.is_none() || pair[0].until.is_none_or(|end| end > begin) {
                return Err(PricesError::Overlap(begin));
            }
        }
        Ok(Self { rate: Some(rate), rates })
    }

    /// The rate at a time.
    pub fn at(&self, time: Timestamp) -> &Rate {
        let dated = self.rates.iter().find(|dated| dated.holds(time));
        dated.map_or_else(|| self.default_rate(), |dated| &dated.rate)
    }

    /// The cost of an answer that arrived at this time.
    pub fn cost(&self, answer: &Answer, at: Timestamp, mode: PriceMode) -> Cost {
        self.at(at).cost(answer, mode)
    }

    /// The highest possible cost of a call with so many tokens, to be reserved.
    pub fn at_most(&self, tokens_in: u64, tokens_out: u64, at: Timestamp, mode: PriceMode) -> Cost {
        self.at(at).at_most(tokens_in, tokens_out, mode)
    }

    /// Whether a provider's service tier has prices at any time.
    pub(crate) fn has_tier(&self, name: &str) -> bool {
        let has = |rate: &Rate| rate.tiers.iter().any(|tier| tier.tier.as_deref() == Some(name));
        has(self.default_rate()) && self.rates.iter().all(|dated| has(&dated.rate))
    }

    /// The default rate, for times without a dated one.
    pub fn default_rate(&self) -> &Rate {
        self.rate.as_ref().unwrap_or(&FREE)
    }

    /// Whether prices are stated, be they zero.
    pub fn is_stated(&self) -> bool {
        self.rate.is_some()
    }

    /// The dated rates, sorted by start.
    pub fn dated(&self) -> &[DatedRate] {
        &self.rates
    }
}

impl DatedRate {
    fn holds(&self, time: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= time) && self.until.is_none_or(|until| time < until)
    }

    fn check(&self) -> Result<(), PricesError> {
        match (self.from, self.until) {
            (None, None) => Err(PricesError::Undated),
            (Some(from), Some(until)) if from >= until => Err(PricesError::Inverted { from, until }),
            _ => Ok(()),
        }
    }
}

fn check(rate: &Rate) -> Result<(), PricesError> {
    let own = rate.batch_input.is_some() || rate.batch_output.is_some();
    let own = own || rate.tiers.iter().any(|t| t.batch_input.is_some() || t.batch_output.is_some());
    if rate.batch.is_some() && own {
        return Err(PricesError::TwoBatchPrices);
    }
    let of = |tier: &Tier| (tier.above, tier.tier.clone());
    let mut conditions: Vec<_> = rate.tiers.iter().map(of).collect();
    if conditions.contains(&(None, None)) {
        return Err(PricesError::TierForAll);
    }
    conditions.sort();
    conditions.dedup();
    if conditions.len() < rate.tiers.len() { Err(PricesError::TierTwice) } else { Ok(()) }
}

/// Prices as written, at the top level and in `rates`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PricesToml {
    #[serde(deserialize_with = "time")]
    from: Option<Timestamp>,
    #[serde(deserialize_with = "time")]
    until: Option<Timestamp>,
    input: Option<Price>,
    output: Option<Price>,
    cache_read: Option<Price>,
    cache_write: Option<Price>,
    cache_write_long: Option<Price>,
    batch: Option<PriceShare>,
    batch_input: Option<Price>,
    batch_output: Option<Price>,
    tiers: Vec<Tier>,
    rates: Option<Vec<PricesToml>>,
}

impl TryFrom<PricesToml> for Prices {
    type Error = PricesError;

    fn try_from(mut toml: PricesToml) -> Result<Self, PricesError> {
        if toml.from.is_some() || toml.until.is_some() {
            return Err(PricesError::Misplaced);
        }
        let rates = toml.rates.take().unwrap_or_default();
        let rates: Vec<_> = rates.into_iter().map(PricesToml::dated).collect::<Result<_, _>>()?;
        if rates.is_empty() && toml.is_empty() {
            return Ok(Self::default());
        }
        Self::new(toml.rate()?, rates)
    }
}

impl PricesToml {
    fn dated(self) -> Result<DatedRate, PricesError> {
        if self.rates.is_some() {
            return Err(PricesError::Misplaced);
        }
        Ok(DatedRate { from: self.from, until: self.until, rate: self.rate()? })
    }

    fn rate(self) -> Result<Rate, PricesError> {
        let (Some(input), Some(output)) = (self.input, self.output) else {
            return Err(PricesError::Incomplete);
        };
        Ok(Rate {
            input,
            output,
            cache_read: self.cache_read,
            cache_write: self.cache_write,
            cache_write_long: self.cache_write_long,
            batch: self.batch,
            batch_input: self.batch_input,
            batch_output: self.batch_output,
            tiers: self.tiers,
        })
    }

    fn is_empty(&self) -> bool {
        let caches = [self.cache_read, self.cache_write, self.cache_write_long];
        let batch = [self.batch_input, self.batch_output, self.batch.map(Price::from)];
        let prices = [self.input, self.output].into_iter().chain(caches).chain(batch);
        prices.flatten().next().is_none() && self.tiers.is_empty()
    }
}

/// A day (its start in UTC) or a time, in quotes or as a TOML date.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a day or a time")]
    enum TextOrDate {
        Text(String),
        Date(toml::value::Datetime),
    }
    let text = Option::<TextOrDate>::deserialize(deserializer)?.map(|written| match written {
        TextOrDate::Text(text) => text,
        TextOrDate::Date(date) => date.to_string(),
    });
    let parse = |text: String| Timestamp::parse_time_or_day(&text).map_err(|_| PricesError::NoTime(text));
    text.map(parse).transpose().map_err(serde::de::Error::custom)
}
