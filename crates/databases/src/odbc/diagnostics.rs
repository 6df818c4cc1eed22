//! Reads the diagnostics of ODBC drivers.

use odbc_api::Error;
use odbc_api::handles::Record;

/// SQLSTATEs of timeouts.
pub(crate) const TIMEOUTS: [&str; 3] = ["HYT00", "HYT01", "S1T00"];

/// The diagnostic record of an error, if the driver reported it.
pub(crate) fn record(error: &Error) -> Option<&Record> {
    match error {
        Error::Diagnostics { record, .. }
        | Error::UnsupportedOdbcApiVersion(record)
        | Error::UnableToRepresentNull(record)
        | Error::OracleOdbcDriverDoesNotSupport64Bit(record)
        | Error::InvalidRowArraySize { record, .. } => Some(record),
        _ => None,
    }
}

/// Whether the error is transient: a timeout, or a lock.
pub(crate) fn is_transient(record: &Record) -> bool {
    // SQLite's driver has no SQLSTATE for it.
    TIMEOUTS.contains(&record.state.as_str()) || text(record).contains("database is locked")
}

fn text(record: &Record) -> String {
    String::from_utf16_lossy(&record.message)
}

/// The first line of the message, without the bracketed names of driver and library.
pub(crate) fn message(error: &Error) -> String {
    let Some(record) = record(error) else { return error.to_string() };
    let text = text(record);
    let mut words = text.lines().next().unwrap_or_default().trim();
    while let Some((_, rest)) = words.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        words = rest.trim_start();
    }
    let words = words.trim_end_matches(['\0', ';', ' ']);
    if words.is_empty() { format!("SQLSTATE {}", record.state.as_str()) } else { words.to_owned() }
}
