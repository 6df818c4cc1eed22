//! Where a page of a ledger's lists ended. No name holds a `/`.

use std::str::FromStr;

use super::{Call, Deed, KeyRecord, ProfileRecord};
use crate::name::{CallId, KeyName, ProfileName, TenantId};
use crate::time::Timestamp;
use crate::{Error, Result};

/// Behind this profile.
pub fn after_profile(profile: &ProfileRecord) -> String {
    format!("{}/{}", profile.tenant, profile.name)
}

/// Whose profile, and which, a list goes on behind.
pub fn profile(cursor: &str) -> Result<(TenantId, ProfileName)> {
    let (tenant, name) = cursor.split_once('/').ok_or_else(|| bad(cursor))?;
    Ok((part(cursor, tenant)?, part(cursor, name)?))
}

/// Behind this version of a key.
pub fn after_key(kept: &KeyRecord) -> String {
    format!("{}/{}/{}", kept.key.tenant, kept.key.name, kept.key.version)
}

/// Whose key, which, and which version a list goes on behind.
pub fn key(cursor: &str) -> Result<(TenantId, KeyName, u32)> {
    let (tenant, rest) = cursor.split_once('/').ok_or_else(|| bad(cursor))?;
    let (name, version) = rest.split_once('/').ok_or_else(|| bad(cursor))?;
    Ok((part(cursor, tenant)?, part(cursor, name)?, part(cursor, version)?))
}

/// Behind this call.
pub fn after_call(call: &Call) -> String {
    format!("{}/{}", call.opened_at.as_micros(), call.call.id)
}

/// When the call was opened that a list goes on behind, and which it is.
pub fn call(cursor: &str) -> Result<(Timestamp, CallId)> {
    let (micros, id) = cursor.split_once('/').ok_or_else(|| bad(cursor))?;
    Ok((Timestamp::from_micros(part(cursor, micros)?), part(cursor, id)?))
}

/// Behind this entry of the audit log.
pub fn after_deed(deed: &Deed) -> String {
    deed.seq.to_string()
}

/// The place in the audit log that a list goes on behind.
pub fn deed(cursor: &str) -> Result<i64> {
    part(cursor, cursor)
}

fn part<T: FromStr>(cursor: &str, text: &str) -> Result<T> {
    text.parse().map_err(|_| bad(cursor))
}

fn bad(cursor: &str) -> Error {
    Error::Invalid(format!("`{cursor}` is not a cursor of this list"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_cursor_is_refused() {
        assert_eq!(key("acme/main/7").unwrap().2, 7);
        for text in ["", "/", "a", "a/", "a/b/", "a/b/x", "a/b/-1", "1/2"] {
            assert!(key(text).is_err() && call(text).is_err(), "{text}");
        }
    }
}
