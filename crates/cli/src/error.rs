//! Prints errors: `error:`, its causes, and a hint where one is known. The rest of this crate
//! returns `anyhow::Error`; this module adds hints and prints it.

use std::error::Error as StdError;
use std::fmt;
use std::io::{self, Write};

use longshore::store::{CapacityScope, SendRejection};
use longshore_ai::VaultError;
use longshore_trusted_path::PathError;

use crate::exit::ExitCode;

pub use longshore::{did_you_mean, suggestion};

/// An error with a hint for the user.
#[derive(Debug)]
struct HintedError {
    error: anyhow::Error,
    hint: String,
}

impl fmt::Display for HintedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl StdError for HintedError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}

/// An invalid command line, found after the arguments were parsed.
#[derive(Debug)]
pub struct UsageError(pub String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for UsageError {}

/// A usage error.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    UsageError(message.into()).into()
}

/// Adds a hint to an error.
pub trait WithHint<T> {
    /// Adds what the user can do about it.
    fn hint(self, hint: impl Into<String>) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> WithHint<T> for Result<T, E> {
    fn hint(self, hint: impl Into<String>) -> anyhow::Result<T> {
        self.map_err(|error| hinted(error.into(), hint))
    }
}

/// An error with a hint.
pub fn hinted(error: anyhow::Error, hint: impl Into<String>) -> anyhow::Error {
    HintedError { error, hint: hint.into() }.into()
}

/// Prints `error` to stderr and chooses the exit code. A closed pipe (`| head`) is no error.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if is_broken_pipe(error) {
        return ExitCode::Good;
    }
    // If stderr is closed too, nothing can be reported.
    let _ = write(error, &mut io::stderr().lock());
    if causes(error).any(<dyn StdError>::is::<UsageError>) {
        return ExitCode::Usage;
    }
    let refused = causes(error).filter_map(refusal).any(SendRejection::rejects_chunk);
    if refused { ExitCode::Refused } else { ExitCode::Error }
}

/// Why the store refused a unit, if this is the cause.
fn refusal<'a>(cause: &'a (dyn StdError + 'static)) -> Option<&'a SendRejection> {
    #[cfg(feature = "standard")]
    if let Some(longshore_dispatch::client::ClientError::Rejected(refusal)) = cause.downcast_ref() {
        return Some(refusal);
    }
    match cause.downcast_ref() {
        Some(longshore::SendError::Rejected(refusal)) => Some(refusal),
        _ => cause.downcast_ref(),
    }
}

/// The hint for a refusal.
fn refusal_hint(refusal: &SendRejection) -> Option<String> {
    let raise = match refusal {
        SendRejection::Suspended(tenant) => {
            return Some(format!("`longshore tenant resume {tenant}` reactivates it"));
        }
        SendRejection::Full { bound: CapacityScope::Tenant, .. } => "tenant set NAME --max-units N",
        SendRejection::Full { bound: CapacityScope::Lane, .. } => {
            "queue set QUEUE --lane TENANT --max-units N"
        }
        SendRejection::Full { .. } => "queue set QUEUE --max-units N",
        _ => return None,
    };
    Some(format!("wait for room (`--wait-room 5m`), or raise the bound (`longshore {raise}`)"))
}

/// All causes, including those inside a hint.
fn causes(error: &anyhow::Error) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    error.chain().flat_map(|cause| {
        let inner = cause.downcast_ref::<HintedError>().map(|hinted| &*hinted.error);
        [Some(cause), inner.map(|inner| inner as &(dyn StdError + 'static))].into_iter().flatten()
    })
}

fn write(error: &anyhow::Error, to: &mut impl Write) -> io::Result<()> {
    writeln!(to, "error: {error}")?;
    let mut printed = error.to_string();
    for cause in error.chain().skip(1) {
        let text = cause.to_string();
        // Many libraries repeat their source's message in their own.
        if !printed.contains(&text) {
            writeln!(to, "  caused by: {text}")?;
        }
        printed = text;
    }
    match hint(error) {
        Some(hint) => writeln!(to, "hint: {hint}"),
        None => Ok(()),
    }
}

/// The hint for an error.
pub fn hint(error: &anyhow::Error) -> Option<String> {
    let given = error.chain().find_map(|cause| cause.downcast_ref::<HintedError>());
    let given = given.map(|hinted| hinted.hint.clone());
    given.or_else(|| server_hint(error)).or_else(|| causes(error).find_map(known_hint))
}

/// The hint of a server, which takes precedence over the hint for a store's error.
#[cfg(feature = "standard")]
fn server_hint(error: &anyhow::Error) -> Option<String> {
    use longshore_web::client::ApiError;
    causes(error).find_map(|cause| cause.downcast_ref().and_then(ApiError::hint))
}

#[cfg(not(feature = "standard"))]
fn server_hint(_: &anyhow::Error) -> Option<String> {
    None
}

/// Hints for causes that can occur anywhere.
fn known_hint(cause: &(dyn StdError + 'static)) -> Option<String> {
    use longshore::Error;
    if let Some(hint) = refusal(cause).and_then(refusal_hint) {
        return Some(hint);
    }
    if let Some(hint) = cause.downcast_ref().and_then(vault_hint) {
        return Some(hint);
    }
    if let Some(hint) = cause.downcast_ref().and_then(PathError::hint) {
        return Some(hint);
    }
    if let Some(hint) = cause.downcast_ref().and_then(listen_hint) {
        return Some(hint.to_owned());
    }
    let hint = match store_error(cause)? {
        Error::DiskFull { .. } => "free some space; nothing that was accepted is lost",
        Error::Schema { found, supported } if found < supported => {
            "run `longshore migrate`; `longshore migrate --plan` shows its SQL first"
        }
        Error::ClockSkew(_) => {
            "have both machines follow a time server (chrony, systemd-timesyncd); [postgres] max_clock_skew is the limit"
        }
        Error::Schema { .. } => "this store belongs to a newer longshore: use that version",
        Error::NotFound { what: "tenant", .. } => "`longshore tenant list` shows the tenants",
        Error::NotFound { what: "batch", .. } => "`longshore batch list` shows the batches",
        Error::NotFound { what: "profile", .. } => "`longshore profile list` shows the profiles",
        Error::ReplyQueueOpen(_) => {
            "`longshore ai replies read QUEUE`, or `longshore ai replies close QUEUE`"
        }
        Error::NotFound { what: "open reply queue", .. } => {
            "`longshore ai replies list` shows the open ones; one that is not read is closed after its --ttl"
        }
        Error::NotFound { what: "key", .. } => "`longshore key list` shows the keys",
        Error::NotFound { what: "unit", .. } => {
            "`longshore unit list` shows the units; ended ones are pruned after a while"
        }
        Error::TooLarge { .. } => "put large data into a file and its path into the payload",
        Error::Unavailable { .. } => {
            "is it up, and is --store (or LONGSHORE_STORE) right? workers wait for it: `patience`"
        }
        Error::TimedOut { .. } => {
            "does a long transaction hold a lock? `pg_stat_activity` shows the transactions"
        }
        Error::Broken { .. } => {
            "check --store (or LONGSHORE_STORE): is this file a longshore store? \
             `longshore verify` checks it"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// The hint for an address that cannot be listened on.
fn listen_hint(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            Some("another process listens there (`ss -ltnp` shows it): end it, or choose another --listen")
        }
        io::ErrorKind::AddrNotAvailable => {
            Some("--listen takes an address of this machine (`ip address` shows them), or 127.0.0.1")
        }
        _ => None,
    }
}

/// The hint for an error of the vault.
fn vault_hint(error: &VaultError) -> Option<String> {
    Some(match error {
        VaultError::NoMaster => {
            "`longshore key init` creates one; [vault] key_file or LONGSHORE_KEY_FILE names its file"
                .to_owned()
        }
        VaultError::NotFound { tenant, .. } => {
            format!("`longshore key list` shows the keys; searched those of tenant `{tenant}`")
        }
        other => return other.hint(),
    })
}

/// The store's error. The engine's errors display it as their own, so it is not in their chain of
/// causes.
fn store_error<'a>(cause: &'a (dyn StdError + 'static)) -> Option<&'a longshore::Error> {
    use longshore::{SendError, WaitError, WorkerError};
    if let Some(SendError::Store(error)) = cause.downcast_ref() {
        return Some(error);
    }
    if let Some(WaitError::Store(error)) = cause.downcast_ref() {
        return Some(error);
    }
    if let Some(WorkerError::Store(error)) = cause.downcast_ref() {
        return Some(error);
    }
    if let Some(VaultError::Store(error)) = cause.downcast_ref() {
        return Some(error);
    }
    cause.downcast_ref()
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    causes(error).any(|cause| {
        let io = cause.downcast_ref::<io::Error>();
        io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    fn shown(error: &anyhow::Error) -> String {
        let mut text = Vec::new();
        write(error, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn an_error_shows_its_causes_and_its_hint() {
        let inner: Result<(), _> = Err(io::Error::other("the dog ate it"));
        let error = inner.hint("feed the dog").context("cannot read the homework").unwrap_err();
        assert_eq!(
            shown(&error),
            "error: cannot read the homework\n  caused by: the dog ate it\nhint: feed the dog\n"
        );
    }

    #[test]
    fn a_broken_pipe_is_success_and_a_usage_error_is_two() {
        let pipe = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(report(&pipe.context("cannot print")), ExitCode::Good);
        assert_eq!(report(&usage("no")), ExitCode::Usage);
        assert_eq!(report(&hinted(usage("no"), "yes")), ExitCode::Usage);
    }

    #[test]
    fn what_the_store_said_has_its_hint_whoever_passes_it_on() {
        let full = || longshore::Error::DiskFull { source: None };
        let errors: [anyhow::Error; 4] = [
            full().into(),
            longshore::SendError::from(full()).into(),
            longshore::WaitError::from(full()).into(),
            longshore::WorkerError::from(full()).into(),
        ];
        for error in errors {
            let text = shown(&error.context("cannot go on"));
            assert!(text.contains("hint: free some space"), "{text}");
        }
    }
}
