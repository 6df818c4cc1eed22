//! What was found.

use serde::Serialize;

/// One thing that was looked at.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) area: &'static str,
    pub(super) state: State,
    pub(super) says: String,
    /// How to mend it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mend: Option<String>,
}

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Good,
    /// It works, and may not go on to, or not for everybody.
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

    /// A word that has its colour in tables.
    pub(super) fn colour(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Doubtful => "paused",
            Self::Wrong => "failed",
        }
    }
}

impl Finding {
    pub(super) fn good(area: &'static str, says: impl Into<String>) -> Self {
        Self { area, state: State::Good, says: says.into(), mend: None }
    }

    pub(super) fn doubtful(
        area: &'static str,
        says: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { area, state: State::Doubtful, says: says.into(), mend: Some(mend.into()) }
    }

    pub(super) fn wrong(
        area: &'static str,
        says: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { area, state: State::Wrong, says: says.into(), mend: Some(mend.into()) }
    }
}
