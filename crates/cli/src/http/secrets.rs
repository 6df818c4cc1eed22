//! Secrets that a worker adds to its requests: taken from its environment, kept out of the store.
//!
//! A header value may contain words `env:NAME`. A client that submits units chooses both the name
//! and the URL: only variables that `http.env` lists are used, each for its own destinations, so that
//! no client can send them to its own server.

use longshore::Verdict;
use reqwest::Url;
use reqwest::header::HeaderValue;

use super::allowlist::Allowlist;
use super::payload::header_value;
use crate::env;

/// Replaces a secret in output.
const REDACTED: &str = "***";
/// A shorter value is no secret, and would match everywhere.
const MIN_SECRET: usize = 4;

/// The variables that may be used, with a destination each, as `TOKEN=https://api.example.com`.
#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct AllowedVariables(Vec<(String, Allowlist)>);

impl TryFrom<Vec<String>> for AllowedVariables {
    type Error = String;

    fn try_from(entries: Vec<String>) -> Result<Self, String> {
        let read = |text: &String| {
            let (name, destination) =
                text.split_once('=').filter(|(name, _)| is_name(name)).ok_or_else(|| {
                    format!("`{text}` is not a variable with a destination, as TOKEN=https://api.example.com")
                })?;
            Ok((name.to_owned(), Allowlist::new(&[destination.to_owned()])?))
        };
        entries.iter().map(read).collect::<Result<_, _>>().map(Self)
    }
}

impl AllowedVariables {
    /// Replaces the variables in the value of a header of a request to `url`, and records them in
    /// `used`.
    pub fn fill(&self, value: &str, url: &Url, used: &mut Secrets) -> Result<HeaderValue, Verdict> {
        let words: Vec<String> = value
            .split(' ')
            .map(|word| match word.strip_prefix("env:").filter(|name| is_name(name)) {
                Some(name) => self.secret(name, url).inspect(|secret| used.record(secret)),
                None => Ok(word.to_owned()),
            })
            .collect::<Result<_, _>>()?;
        let filled = words.join(" ");
        let mut header = header_value(&filled)?;
        header.set_sensitive(filled != value);
        Ok(header)
    }

    fn secret(&self, name: &str, url: &Url) -> Result<String, Verdict> {
        if !self.0.iter().any(|(listed, destinations)| listed == name && destinations.matches(url)) {
            let why =
                format!("`env:{name}`: this worker's `http.env` does not list {name} for this destination");
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

    const PATH: &str = "PATH=https://api.example.com";

    /// Fills a header of a request to `https://api.example.com`. `PATH` is set wherever tests run,
    /// and serves as a secret.
    fn fill(entries: &[&str], value: &str) -> (Result<HeaderValue, Verdict>, Secrets) {
        let mut used = Secrets::default();
        let entries: Vec<String> = entries.iter().map(|&entry| entry.to_owned()).collect();
        let url = "https://api.example.com/orders".parse().unwrap();
        (AllowedVariables::try_from(entries).unwrap().fill(value, &url, &mut used), used)
    }

    #[test]
    fn a_listed_variable_takes_the_place_of_its_word() {
        let path = std::env::var("PATH").unwrap();
        let (value, used) = fill(&["PATH=https://other.example", PATH], "Bearer env:PATH");
        let value = value.unwrap();
        assert_eq!(value.to_str().unwrap(), format!("Bearer {path}"));
        assert!(value.is_sensitive() && !format!("{value:?}").contains(&path));
        assert_eq!(used.redact(format!("<{path}>")), "<***>");
        let (plain, used) = fill(&[PATH], "plain env: env:? a  b");
        assert_eq!(plain.unwrap(), "plain env: env:? a  b");
        assert_eq!(used.longest(), 0);
    }

    #[test]
    fn what_is_not_listed_for_the_destination_or_not_set_is_a_failure_that_names_it() {
        for (entries, name) in [
            (&[][..], "PATH"),
            (&["PATH=https://hooks.acme.example", "OTHER=https://api.example.com"], "PATH"),
            (&["PATH=http://api.example.com", "PATH=https://api.example.com:444"], "PATH"),
            (&["NO_SUCH_THING=https://api.example.com"], "NO_SUCH_THING"),
        ] {
            let (refused, _) = fill(entries, &format!("env:{name}"));
            let Err(Verdict::Fail(failure)) = refused else { panic!("{refused:?}") };
            assert!(failure.code == "secret" && failure.message.contains(name), "{failure}");
        }
    }

    #[test]
    fn a_variable_without_a_destination_is_refused_with_the_reason() {
        for (entry, why) in [
            ("TOKEN", "TOKEN=https://api.example.com"),
            ("=https://api.example.com", "not a variable"),
            ("TOKEN=api.example.com", "no `://`"),
        ] {
            let error = AllowedVariables::try_from(vec![entry.to_owned()]).unwrap_err();
            assert!(error.contains(why), "{error}");
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
