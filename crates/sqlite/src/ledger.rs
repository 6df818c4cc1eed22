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
