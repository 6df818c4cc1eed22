//! Secrets that a worker adds to its requests: taken from its environment, kept out of the store.
//!
//! A header value may contain words `env:NAME`. Only variables that `http.env` lists are used:
//! otherwise every client that submits units could read the worker's whole environment.

use longshore::Verdict;
use reqwest::header::HeaderValue;

use super::payload::header_value;
use crate::env;

/// Replaces a secret in output.
const REDACTED: &str = "***";
/// A shorter value is no secret, and would match everywhere.
const MIN_SECRET: usize = 4;

/// The names of the variables that may be used.
#[derive(Debug)]
pub struct AllowedVariables(Vec<String>);

impl AllowedVariables {
    /// Allows these variables.
    pub fn new(names: Vec<String>) -> Self {
        Self(names)
    }

    /// Replaces the variables in a header's value, and records them in `used`.
    pub fn fill(&self, value: &str, used: &mut Secrets) -> Result<HeaderValue, Verdict> {
        let words: Vec<String> = value
            .split(' ')
            .map(|word| match word.strip_prefix("env:").filter(|name| is_name(name)) {
                Some(name) => self.secret(name).inspect(|secret| used.record(secret)),
                None => Ok(word.to_owned()),
            })
            .collect::<Result<_, _>>()?;
        let filled = words.join(" ");
        let mut header = header_value(&filled)?;
        header.set_sensitive(filled != value);
        Ok(header)
    }

    fn secret(&self, name: &str) -> Result<String, Verdict> {
        if !self.0.iter().any(|listed| listed == name) {
            let why = format!(
                "`env:{name}`: this worker's `http.env` does not list {name}, or a tenant's unit calls a \
                 destination that is not in `http.allow`"
            );
            return Err(Verdict::fail("secret", why));
        }
        let value = env::secret(name).filter(|value| !value.is_empty());
        value.ok_or_else(|| {
            Verdict::fail("secret", format!("`env:{name}`: this worker has no variable {name}"))
        })
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The secrets of one request. Not printable.
#[derive(Default)]
pub struct Secrets(Vec<String>);

impl Secrets {
    fn record(&mut self, secret: &str) {
        if secret.len() < MIN_SECRET {
            return;
        }
        // A server that repeats it in JSON may escape it.
        let escaped = serde_json::Value::from(secret).to_string();
        let escaped = escaped.trim_matches('"');
        self.0.push(secret.to_owned());
        if escaped != secret {
            self.0.push(escaped.to_owned());
        }
        // The longest first: one secret may begin with another.
        self.0.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    }

    /// The length of the longest secret.
    pub fn longest(&self) -> usize {
        self.0.first().map_or(0, String::len)
    }

    /// The text with all secrets replaced.
    pub fn redact(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| text.replace(secret, REDACTED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `PATH` is set wherever tests run, and serves as a secret.
    fn fill(names: &[&str], value: &str) -> (Result<HeaderValue, Verdict>, Secrets) {
        let mut used = Secrets::default();
        let variables = AllowedVariables::new(names.iter().map(|&name| name.to_owned()).collect());
        (variables.fill(value, &mut used), used)
    }

    #[test]
    fn a_listed_variable_takes_the_place_of_its_word() {
        let path = std::env::var("PATH").unwrap();
        let (value, used) = fill(&["PATH"], "Bearer env:PATH");
        let value = value.unwrap();
        assert_eq!(value.to_str().unwrap(), format!("Bearer {path}"));
        assert!(value.is_sensitive() && !format!("{value:?}").contains(&path));
        assert_eq!(used.redact(format!("<{path}>")), "<***>");
        let (plain, used) = fill(&["PATH"], "plain env: env:? a  b");
        assert_eq!(plain.unwrap(), "plain env: env:? a  b");
        assert_eq!(used.longest(), 0);
    }

    #[test]
    fn what_is_not_listed_or_not_set_is_a_failure_that_names_it() {
        for (names, name) in [(&[][..], "PATH"), (&["NO_SUCH_THING"][..], "NO_SUCH_THING")] {
            let (refused, _) = fill(names, &format!("env:{name}"));
            let Err(Verdict::Fail(failure)) = refused else { panic!("{refused:?}") };
            assert!(failure.code == "secret" && failure.message.contains(name), "{failure}");
        }
    }

    #[test]
    fn a_secret_is_recognised_in_json_and_beside_one_that_it_begins_with() {
        let mut secrets = Secrets::default();
        for secret in ["abcd", "abcdefgh", "qu\"ote", "x"] {
            secrets.record(secret);
        }
        assert_eq!(secrets.redact("abcdefgh abcd x".into()), "*** *** x");
        assert_eq!(secrets.redact(r#"{"a":"qu\"ote"}"#.into()), r#"{"a":"***"}"#);
    }
}
