//! A model's prices: those that hold usually, and those that hold from or until a certain day, so that
//! a change is known beforehand.

use longshore_core::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use crate::ask::Answer;
use crate::cost::Cost;
use crate::price::Price;
use crate::rate::{Mode, Rate, Share, Tier};

/// What a model's tokens cost, and when. Nothing, unless it is said.
///
/// ```
/// use longshore_ai::{Answer, Cost, Mode, Prices};
/// use longshore_core::time::Timestamp;
///
/// let prices: Prices = serde_json::from_str(
///     r#"{ "input": 3, "output": 15, "rates": [{ "from": "2026-12-01", "input": 2, "output": 10 }] }"#,
/// ).unwrap();
/// let answer = Answer { tokens_in: 1, ..Answer::default() };
/// let cost = |day| prices.cost(&answer, Timestamp::parse(day).unwrap(), Mode::Direct);
/// assert_eq!(cost("2026-11-30T23:59:59Z"), Cost(3_000_000));
/// assert_eq!(cost("2026-12-01T00:00:00Z"), Cost(2_000_000));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct Prices {
    #[serde(flatten)]
    rate: Rate,
    /// The earliest first; none overlaps another.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rates: Vec<DatedRate>,
}

/// A rate that holds for a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DatedRate {
    /// From this time on; from the beginning, unless it is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Until before this time; for ever, unless it is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What holds then. It stands for itself: what it does not say is not taken from elsewhere.
    #[serde(flatten)]
    pub rate: Rate,
}

/// Prices that make no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PricesError {
    /// There are prices, but not these two.
    #[error("prices need `input` and `output`, dollars per million tokens")]
    Incomplete,
    /// A part and prices of their own.
    #[error("`batch` and `batch_input` or `batch_output` exclude each other")]
    TwoBatchPrices,
    /// A tier that is for every call.
    #[error("a tier needs `above` (tokens of a question) or `tier` (the provider's name for it)")]
    TierForAll,
    /// Two tiers for the same calls.
    #[error("two tiers are for the same calls")]
    TierTwice,
    /// A rate that always holds.
    #[error("one of `rates` needs `from` or `until`")]
    Undated,
    /// A rate that never holds.
    #[error("a rate ends ({until}) before it begins ({from})")]
    Inverted {
        /// Its beginning.
        from: Timestamp,
        /// Its end.
        until: Timestamp,
    },
    /// Two rates for the same time.
    #[error("two rates hold at {0}: let one end where the other begins")]
    Overlap(Timestamp),
    /// A rate with a beginning, an end, or rates of its own where there can be none.
    #[error("`from` and `until` belong into `rates`, and `rates` not into one of them")]
    Misplaced,
    /// Neither a day nor a time.
    #[error("`{0}` is neither a day, as 2026-12-01, nor a time, as 2026-12-01T00:00:00Z")]
    NoTime(String),
}

impl Prices {
    /// Questions and answers at one price each, always.
    pub fn flat(input: Price, output: Price) -> Self {
        Self { rate: Rate::flat(input, output), rates: Vec::new() }
    }

    /// What holds usually, and what holds for a time.
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
        Ok(Self { rate, rates })
    }

    /// What holds at a time.
    pub fn at(&self, time: Timestamp) -> &Rate {
        let dated = self.rates.iter().find(|dated| dated.holds(time));
        dated.map_or(&self.rate, |dated| &dated.rate)
    }

    /// What an answer cost that came at this time.
    pub fn cost(&self, answer: &Answer, at: Timestamp, mode: Mode) -> Cost {
        self.at(at).cost(answer, mode)
    }

    /// The most that a call of so many tokens can cost: what is reserved for it.
    pub fn at_most(&self, tokens_in: u64, tokens_out: u64, at: Timestamp, mode: Mode) -> Cost {
        self.at(at).at_most(tokens_in, tokens_out, mode)
    }

    /// What holds where no other rate does.
    pub fn usual(&self) -> &Rate {
        &self.rate
    }

    /// The rates with dates, the earliest first.
    pub fn dated(&self) -> &[DatedRate] {
        &self.rates
    }
}

/// A day (its first moment in UTC) or a time in RFC 3339.
pub fn parse_time(text: &str) -> Result<Timestamp, PricesError> {
    let day = || Timestamp::parse(&format!("{text}T00:00:00Z"));
    Timestamp::parse(text).or_else(|_| day()).map_err(|_| PricesError::NoTime(text.to_owned()))
}

impl DatedRate {
    fn holds(&self, time: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= time) && self.until.is_none_or(|until| time < until)
    }

    fn check(&self) -> Result<(), PricesError> {
        match (self.from, self.until) {
            (None, None) => Err(PricesError::Undated),
            (Some(from), Some(until)) if from >= until => {
                Err(PricesError::Inverted { from, until })
            }
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
    let mut seen: Vec<_> = rate.tiers.iter().map(of).collect();
    if seen.contains(&(None, None)) {
        return Err(PricesError::TierForAll);
    }
    seen.sort();
    seen.dedup();
    if seen.len() < rate.tiers.len() { Err(PricesError::TierTwice) } else { Ok(()) }
}

/// Prices as they are written, at the top and in `rates`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    #[serde(deserialize_with = "time")]
    from: Option<Timestamp>,
    #[serde(deserialize_with = "time")]
    until: Option<Timestamp>,
    input: Option<Price>,
    output: Option<Price>,
    cache_read: Option<Price>,
    cache_write: Option<Price>,
    cache_write_long: Option<Price>,
    batch: Option<Share>,
    batch_input: Option<Price>,
    batch_output: Option<Price>,
    tiers: Vec<Tier>,
    rates: Option<Vec<Written>>,
}

impl TryFrom<Written> for Prices {
    type Error = PricesError;

    fn try_from(mut written: Written) -> Result<Self, PricesError> {
        if written.from.is_some() || written.until.is_some() {
            return Err(PricesError::Misplaced);
        }
        let rates = written.rates.take().unwrap_or_default();
        let rates: Vec<_> = rates.into_iter().map(Written::dated).collect::<Result<_, _>>()?;
        if rates.is_empty() && written.says_nothing() {
            return Ok(Self::default());
        }
        Self::new(written.rate()?, rates)
    }
}

impl Written {
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

    fn says_nothing(&self) -> bool {
        let caches = [self.cache_read, self.cache_write, self.cache_write_long];
        let batch = [self.batch_input, self.batch_output, self.batch.map(Price::from)];
        let prices = [self.input, self.output].into_iter().chain(caches).chain(batch);
        prices.flatten().next().is_none() && self.tiers.is_empty()
    }
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| parse_time(&text)).transpose().map_err(serde::de::Error::custom)
}
