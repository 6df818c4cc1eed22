//! The desk's vocabulary, until the desk itself is here.
#![allow(dead_code, reason = "the desk uses the rest")]

mod errand;

pub use self::errand::{Errand, Settled};

use crate::ask::{Again, AskError, Code};

fn another_may_help(error: &AskError) -> bool {
    matches!(error.code, Code::RateLimited) && error.again != Again::Never
}
