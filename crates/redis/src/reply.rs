//! Decodes the reply to an acquire.

use std::time::Duration;

use longshore_core::permits::{AcquireResult, PermitGrant};
use longshore_core::{Error, Result};

use crate::error::damaged;

/// A code, two numbers that depend on the code, and the pool's creation time.
pub(crate) type RawReply = (u8, u64, u64, String);

/// Decodes the code and its numbers.
pub(crate) fn parse(code: u8, first: u64, second: u64) -> Result<AcquireResult> {
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let time = Duration::from_micros(second);
    match code {
        1 => Ok(AcquireResult::Granted(PermitGrant { fence: first, waited: time })),
        2 => Ok(AcquireResult::Waiting { position: small(first), retry_after: time }),
        3 => Ok(AcquireResult::Full),
        4 => Ok(AcquireResult::TooHeavy { max: small(first) }),
        other => Err::<_, Error>(damaged(format_args!("reply code {other}"))),
    }
}
