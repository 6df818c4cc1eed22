//! Which answers mean done and which are worth another try, as a payload writes it.

use reqwest::StatusCode;
use serde::{Deserialize, Deserializer};

/// Statuses that mean done: 2xx unless the payload names others.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Expect(#[serde(deserialize_with = "statuses")] Vec<Status>);

impl Default for Expect {
    fn default() -> Self {
        Self(vec![Status::Class(2)])
    }
}

impl Expect {
    /// Whether this status means done.
    pub fn contains(&self, status: StatusCode) -> bool {
        self.0.iter().any(|wanted| wanted.fits(status))
    }
}

/// What may be better later.
#[derive(Debug, Clone, Copy)]
pub enum Trouble {
    /// The server answered with this status.
    Status(StatusCode),
    /// It could not be reached, or fell silent in the middle.
    Connection,
    /// It took too long.
    Timeout,
}

/// What is tried again: unless the payload says otherwise, all that tends to pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryOn {
    statuses: Vec<Status>,
    connection: bool,
    timeout: bool,
}

impl Default for RetryOn {
    fn default() -> Self {
        let statuses = vec![Status::One(408), Status::One(425), Status::One(429), Status::Class(5)];
        Self { statuses, connection: true, timeout: true }
    }
}

impl RetryOn {
    /// Whether it is tried again after this.
    pub fn contains(&self, trouble: Trouble) -> bool {
        match trouble {
            Trouble::Status(status) => self.statuses.iter().any(|wanted| wanted.fits(status)),
            Trouble::Connection => self.connection,
            Trouble::Timeout => self.timeout,
        }
    }
}

impl<'de> Deserialize<'de> for RetryOn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut on = Self { statuses: Vec::new(), connection: false, timeout: false };
        for written in Vec::<Written>::deserialize(deserializer)? {
            match &written {
                Written::Text(word) if word == "connection" => on.connection = true,
                Written::Text(word) if word == "timeout" => on.timeout = true,
                _ => on.statuses.push(written.status().ok_or_else(|| {
                    let known = "a status as 503, a class as \"5xx\", `connection` or `timeout`";
                    serde::de::Error::custom(format!("`{written}` is not {known}"))
                })?),
            }
        }
        Ok(on)
    }
}

/// A status, or a hundred of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    One(u16),
    Class(u16),
}

impl Status {
    fn fits(self, status: StatusCode) -> bool {
        match self {
            Self::One(wanted) => status.as_u16() == wanted,
            Self::Class(class) => status.as_u16() / 100 == class,
        }
    }
}

fn statuses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Status>, D::Error> {
    let status = |written: Written| {
        written.status().ok_or_else(|| {
            let known = "a status as 404 or a class as \"2xx\"";
            serde::de::Error::custom(format!("`{written}` is not {known}"))
        })
    };
    Vec::<Written>::deserialize(deserializer)?.into_iter().map(status).collect()
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a status as 404 or a class as \"2xx\"")]
enum Written {
    Number(u64),
    Text(String),
}

impl Written {
    fn status(&self) -> Option<Status> {
        let text = match self {
            Self::Number(number) => return one(*number),
            Self::Text(text) => text,
        };
        match text.strip_suffix("xx") {
            Some(class) => {
                Some(class.parse().ok()?).filter(|c| (1..=5).contains(c)).map(Status::Class)
            }
            None => one(text.parse().ok()?),
        }
    }
}

fn one(number: u64) -> Option<Status> {
    u16::try_from(number).ok().filter(|n| (100..=599).contains(n)).map(Status::One)
}

impl std::fmt::Display for Written {
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
        let on = RetryOn::default();
        let tried = |code| on.contains(Trouble::Status(status(code)));
        for code in [408, 425, 429, 500, 502, 503, 504, 599] {
            assert!(tried(code), "{code}");
        }
        for code in [200, 301, 400, 401, 403, 404, 409, 422] {
            assert!(!tried(code), "{code}");
        }
        assert!(on.contains(Trouble::Connection) && on.contains(Trouble::Timeout));
    }

    #[test]
    fn a_payload_names_statuses_classes_and_words() {
        let on: RetryOn = serde_json::from_str(r#"[404, "409", "5xx", "timeout"]"#).unwrap();
        let tried = |code| on.contains(Trouble::Status(status(code)));
        assert!(tried(404) && tried(409) && tried(503) && !tried(429));
        assert!(on.contains(Trouble::Timeout) && !on.contains(Trouble::Connection));
        let expect: Expect = serde_json::from_str(r#"["2xx", 404]"#).unwrap();
        assert!(expect.contains(status(204)) && expect.contains(status(404)));
        assert!(!expect.contains(status(302)));
        let nothing: RetryOn = serde_json::from_str("[]").unwrap();
        assert!(!nothing.contains(Trouble::Status(status(503))));
    }

    #[test]
    fn what_is_no_status_is_named() {
        for bad in ["[0]", "[600]", r#"["6xx"]"#, r#"["xx"]"#, r#"["ok"]"#, "[-1]", "7", "[[1]]"] {
            let error = serde_json::from_str::<RetryOn>(bad).unwrap_err().to_string();
            assert!(error.contains("status") || error.contains("sequence"), "{bad}: {error}");
            assert!(serde_json::from_str::<Expect>(bad).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<Expect>(r#"["timeout"]"#).is_err());
    }
}
