//! What a call costs: prices per token, by tier, mode and date.

mod cost;
mod price;
mod prices;
mod rate;
mod token_bound;

pub use cost::{Cost, estimate_tokens};
pub use price::{Price, PriceError};
pub use prices::{DatedRate, Prices, PricesError};
pub use rate::{PriceMode, PriceShare, Rate, Tier};
pub(crate) use token_bound::MAX_IMAGE_TOKENS;
