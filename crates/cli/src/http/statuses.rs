//! Which responses mean success and which are retried, as a payload writes it.

use reqwest::StatusCode;
use serde::{Deserialize, Deserializer};

/// Statuses that mean success: 2xx unless the payload names others.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ExpectedStatuses(#[serde(deserialize_with = "statuses")] Vec<StatusPattern>);

impl Default for ExpectedStatuses {
    fn default() -> Self {
        Self(vec![StatusPattern::Class(2)])
    }
}

impl ExpectedStatuses {
    /// Whether this status means success.
    pub fn contains(&self, status: StatusCode) -> bool {
        self.0.iter().any(|wanted| wanted.matches(status))
    }
}

/// What went wrong with a request.
#[derive(Debug, Clone, Copy)]
pub enum RequestFailure {
    /// The server answered with this status.
    Status(StatusCode),
    /// The server could not be reached, or the connection broke.
    Connection,
    /// The timeout expired.
    Timeout,
}

/// What is retried: by default, all that is usually temporary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryConditions {
    statuses: Vec<StatusPattern>,
    connection: bool,
    timeout: bool,
}

impl Default for RetryConditions {
    fn default() -> Self {
        let statuses = vec![
            StatusPattern::One(408),
            StatusPattern::One(425),
            StatusPattern::One(429),
            StatusPattern::Class(5),
        ];
        Self { statuses, connection: true, timeout: true }
    }
}

impl RetryConditions {
    /// Whether the request is retried after this.
    pub fn contains(&self, failure: RequestFailure) -> bool {
        match failure {
            RequestFailure::Status(status) => self.statuses.iter().any(|wanted| wanted.matches(status)),
            RequestFailure::Connection => self.connection,
            RequestFailure::Timeout => self.timeout,
        }
    }
}

impl<'de> Deserialize<'de> for RetryConditions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut on = Self { statuses: Vec::new(), connection: false, timeout: false };
        for written in Vec::<StatusText>::deserialize(deserializer)? {
            match &written {
                StatusText::Text(word) if word == "connection" => on.connection = true,
                StatusText::Text(word) if word == "timeout" => on.timeout = true,
                _ => on.statuses.push(written.status().ok_or_else(|| {
                    let known = "a status as 503, a class as \"5xx\", `connection` or `timeout`";
                    serde::de::Error::custom(format!("`{written}` is not {known}"))
                })?),
            }
        }
        Ok(on)
    }
}

/// A status, or a class of a hundred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatusPattern {
    One(u16),
    Class(u16),
}

impl StatusPattern {
    fn matches(self, status: StatusCode) -> bool {
        match self {
            Self::One(wanted) => status.as_u16() == wanted,
            Self::Class(class) => status.as_u16() / 100 == class,
        }
    }
}

fn statuses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<StatusPattern>, D::Error> {
    let status = |written: StatusText| {
        written.status().ok_or_else(|| {
            let known = "a status as 404 or a class as \"2xx\"";
            serde::de::Error::custom(format!("`{written}` is not {known}"))
        })
    };
    Vec::<StatusText>::deserialize(deserializer)?.into_iter().map(status).collect()
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a status as 404 or a class as \"2xx\"")]
enum StatusText {
    Number(u64),
    Text(String),
}

impl StatusText {
    fn status(&self) -> Option<StatusPattern> {
        let text = match self {
            Self::Number(number) => return one(*number),
            Self::Text(text) => text,
        };
        match text.strip_suffix("xx") {
            Some(class) => {
                Some(class.parse().ok()?).filter(|c| (1..=5).contains(c)).map(StatusPattern::Class)
            }
            None => one(text.parse().ok()?),
        }
    }
}

fn one(number: u64) -> Option<StatusPattern> {
    u16::try_from(number).ok().filter(|n| (100..=599).contains(n)).map(StatusPattern::One)
}

impl std::fmt::Display for StatusText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16) -> StatusCode {
        StatusCode::from_u16(code).unwrap()
    }

    #[test]
    fn what_tends_to_pass_is_tried_again_unless_told_otherwise() {
        let on = RetryConditions::default();
        let tried = |code| on.contains(RequestFailure::Status(status(code)));
        for code in [408, 425, 429, 500, 502, 503, 504, 599] {
            assert!(tried(code), "{code}");
        }
        for code in [200, 301, 400, 401, 403, 404, 409, 422] {
            assert!(!tried(code), "{code}");
        }
        assert!(on.contains(RequestFailure::Connection) && on.contains(RequestFailure::Timeout));
    }

    #[test]
    fn a_payload_names_statuses_classes_and_words() {
        let on: RetryConditions = serde_json::from_str(r#"[404, "409", "5xx", "timeout"]"#).unwrap();
        let tried = |code| on.contains(RequestFailure::Status(status(code)));
        assert!(tried(404) && tried(409) && tried(503) && !tried(429));
        assert!(on.contains(RequestFailure::Timeout) && !on.contains(RequestFailure::Connection));
        let expect: ExpectedStatuses = serde_json::from_str(r#"["2xx", 404]"#).unwrap();
        assert!(expect.contains(status(204)) && expect.contains(status(404)));
        assert!(!expect.contains(status(302)));
        let nothing: RetryConditions = serde_json::from_str("[]").unwrap();
        assert!(!nothing.contains(RequestFailure::Status(status(503))));
    }

    #[test]
    fn what_is_no_status_is_named() {
        for bad in ["[0]", "[600]", r#"["6xx"]"#, r#"["xx"]"#, r#"["ok"]"#, "[-1]", "7", "[[1]]"] {
            let error = serde_json::from_str::<RetryConditions>(bad).unwrap_err().to_string();
            assert!(error.contains("status") || error.contains("sequence"), "{bad}: {error}");
            assert!(serde_json::from_str::<ExpectedStatuses>(bad).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<ExpectedStatuses>(r#"["timeout"]"#).is_err());
    }
}
