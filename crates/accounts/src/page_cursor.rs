//! Page cursors of the ledger's lists. Names contain no `/`.

use std::str::FromStr;

use longshore_core::{CallId, Error, KeyName, ProfileName, Result, TenantId, Timestamp};

use crate::{AuditEntry, Call, KeyRecord, ProfileRecord};

/// The cursor after this profile.
pub fn after_profile(profile: &ProfileRecord) -> String {
    format!("{}/{}", profile.tenant, profile.name)
}

/// Parses a cursor into tenant and profile.
pub fn profile(cursor: &str) -> Result<(TenantId, ProfileName)> {
    let (tenant, name) = cursor.split_once('/').ok_or_else(|| invalid(cursor))?;
    Ok((parse_part(cursor, tenant)?, parse_part(cursor, name)?))
}

/// The cursor after this version of a key.
pub fn after_key(record: &KeyRecord) -> String {
    format!("{}/{}/{}", record.key.tenant, record.key.name, record.key.version)
}

/// Parses a cursor into tenant, key and version.
pub fn key(cursor: &str) -> Result<(TenantId, KeyName, u32)> {
    let (tenant, rest) = cursor.split_once('/').ok_or_else(|| invalid(cursor))?;
    let (name, version) = rest.split_once('/').ok_or_else(|| invalid(cursor))?;
    Ok((parse_part(cursor, tenant)?, parse_part(cursor, name)?, parse_part(cursor, version)?))
}

/// The cursor after this call.
pub fn after_call(call: &Call) -> String {
    format!("{}/{}", call.opened_at.as_micros(), call.call.id)
}

/// Parses a cursor into the call's opening time and id.
pub fn call(cursor: &str) -> Result<(Timestamp, CallId)> {
    let (micros, id) = cursor.split_once('/').ok_or_else(|| invalid(cursor))?;
    Ok((Timestamp::from_micros(parse_part(cursor, micros)?), parse_part(cursor, id)?))
}

/// The cursor after this entry of the audit log.
pub fn after_audit_entry(entry: &AuditEntry) -> String {
    entry.seq.to_string()
}

/// Parses a cursor into a position in the audit log.
pub fn audit_entry(cursor: &str) -> Result<i64> {
    parse_part(cursor, cursor)
}

fn parse_part<T: FromStr>(cursor: &str, text: &str) -> Result<T> {
    text.parse().map_err(|_| invalid(cursor))
}

fn invalid(cursor: &str) -> Error {
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
