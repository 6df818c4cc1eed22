//! The result of a check.

use serde::Serialize;

/// The result of one check.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct CheckResult {
    pub(super) area: &'static str,
    pub(super) state: State,
    pub(super) says: String,
    /// How to fix it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mend: Option<String>,
}

/// Severity of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Good,
    /// It works now, but may fail later, or for some users.
    Doubtful,
    Wrong,
}

impl State {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Doubtful => "doubtful",
            Self::Wrong => "wrong",
        }
    }

    /// A word that tables print in the colour of this state.
    pub(super) fn colour(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Doubtful => "paused",
            Self::Wrong => "failed",
        }
    }
}

impl CheckResult {
    pub(super) fn good(area: &'static str, says: impl Into<String>) -> Self {
        Self { area, state: State::Good, says: says.into(), mend: None }
    }

    pub(super) fn doubtful(area: &'static str, says: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { area, state: State::Doubtful, says: says.into(), mend: Some(mend.into()) }
    }

    pub(super) fn wrong(area: &'static str, says: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { area, state: State::Wrong, says: says.into(), mend: Some(mend.into()) }
    }
}
