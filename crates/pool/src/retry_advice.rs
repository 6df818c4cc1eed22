//! Retry advice: what a failed operation asks for the unit of work behind its call.

use std::time::Duration;

use serde::Deserialize;

use crate::error::ErrorKind;

/// The delay of a snooze for which the operation gives no time.
const DEFAULT_SNOOZE: Duration = Duration::from_secs(1);

/// What a failed operation asks for the work behind its call. It matters to callers that run work
/// more than once. The operation puts it into its error's `data`, as `{"outcome": "retry",
/// "after_ms": 60000, "code": "quota"}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAdvice {
    /// No further attempt.
    Fail,
    /// Another attempt: when the retry policy says, or after exactly this time. The default if the
    /// operation gives no advice.
    Retry(Option<Duration>),
    /// Later; uses no attempt.
    Snooze(Duration),
}

#[derive(Deserialize)]
struct AdviceFields {
    outcome: Option<AdviceOutcome>,
    after_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum AdviceOutcome {
    Fail,
    Retry,
    Snooze,
}

impl ErrorKind {
    /// The operation's advice. Data that cannot be read as advice counts as no advice.
    pub fn advice(&self) -> RetryAdvice {
        let Self::Handler { data: Some(data), .. } = self else { return RetryAdvice::Retry(None) };
        let Ok(fields) = AdviceFields::deserialize(data) else { return RetryAdvice::Retry(None) };
        let after = fields.after_ms.map(Duration::from_millis);
        match fields.outcome {
            Some(AdviceOutcome::Fail) => RetryAdvice::Fail,
            Some(AdviceOutcome::Snooze) => RetryAdvice::Snooze(after.unwrap_or(DEFAULT_SNOOZE)),
            Some(AdviceOutcome::Retry) | None => RetryAdvice::Retry(after),
        }
    }

    /// The operation's own error code, short and stable: `code` in its `data`.
    pub fn own_code(&self) -> Option<&str> {
        let Self::Handler { data: Some(data), .. } = self else { return None };
        data.get("code")?.as_str().filter(|code| !code.is_empty() && code.len() <= 64)
    }
}

#[cfg(all(test, not(feature = "_shuttle")))]
mod tests {
    use serde_json::json;

    use super::*;

    fn advice_for(data: serde_json::Value) -> RetryAdvice {
        let (message, chain) = ("no".to_owned(), Vec::new());
        ErrorKind::Handler { message, chain, data: Some(data) }.advice()
    }

    #[test]
    fn an_operation_chooses_what_becomes_of_the_work() {
        let after = Duration::from_secs(2);
        assert_eq!(advice_for(json!({"outcome": "fail"})), RetryAdvice::Fail);
        assert_eq!(
            advice_for(json!({"outcome": "retry", "after_ms": 2000})),
            RetryAdvice::Retry(Some(after))
        );
        assert_eq!(advice_for(json!({"outcome": "snooze", "after_ms": 2000})), RetryAdvice::Snooze(after));
        assert_eq!(advice_for(json!({"outcome": "snooze"})), RetryAdvice::Snooze(DEFAULT_SNOOZE));
    }

    #[test]
    fn what_is_no_wish_leaves_it_to_the_policy() {
        let odd = [json!(null), json!([1]), json!({"outcome": "explode"}), json!({"after_ms": -1})];
        for data in odd {
            assert_eq!(advice_for(data.clone()), RetryAdvice::Retry(None), "{data}");
        }
    }
}
