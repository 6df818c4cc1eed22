//! Implements the traits of [`longshore_accounts`], each group of operations in a file of its
//! own.

pub(crate) mod budgets;
pub(crate) mod call_row;
pub(crate) mod calls;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod profiles;
pub(crate) mod provider_batches;
pub(crate) mod reply_queues;
pub(crate) mod tokens;
pub(crate) mod usage;

use longshore_core::store::Page;

/// The first `limit` items; one more was read to know whether there is a next page.
fn page<T>(mut items: Vec<T>, limit: u32, cursor: impl Fn(&T) -> String) -> Page<T> {
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    let next = items.last().filter(|_| more).map(cursor);
    Page { items, next }
}
