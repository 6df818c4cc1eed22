//! What a call costs: prices per token, by tier, mode and date.

mod cost;
mod price;
mod prices;
mod rate;
mod table;
mod token_bound;

pub(crate) use cost::end_of_tokens;
pub use cost::{Cost, estimate_tokens};
pub use price::{Price, PriceError};
pub use prices::{DatedRate, Prices, PricesError};
pub use rate::{PriceMode, PriceShare, Rate, Tier};
pub use table::{MAX_TABLE_AGE, PRICE_TABLE, PriceTable, PriceTableError};
pub(crate) use token_bound::MAX_IMAGE_TOKENS;
