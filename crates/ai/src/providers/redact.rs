//! Redacts a provider's message before it is shown: one line, limited length, no secrets, even if
//! the provider quotes the key that it rejects.

use longshore::text::truncate_chars;
use secrecy::{ExposeSecret, SecretString};

/// Characters of a message that are shown.
const MAX_CHARS: usize = 300;

/// Shorter values occur in other texts by chance.
const MIN_SECRET_BYTES: usize = 6;

/// The secrets of one provider.
#[derive(Debug, Default)]
pub(crate) struct Redactor(Vec<SecretString>);

impl Redactor {
    pub(crate) fn new(secrets: impl IntoIterator<Item = SecretString>) -> Self {
        let secrets = secrets.into_iter();
        Self(secrets.filter(|secret| secret.expose_secret().len() >= MIN_SECRET_BYTES).collect())
    }

    /// A text on one line, without secrets, truncated.
    pub(crate) fn redact(&self, text: &str) -> String {
        let hidden = self
            .0
            .iter()
            .fold(text.to_owned(), |text, secret| text.replace(secret.expose_secret(), "[secret]"));
        let words = hidden.split(|c: char| c.is_whitespace() || c.is_control());
        let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        truncate_chars(&line, MAX_CHARS)
    }

    /// Redacts bytes.
    pub(crate) fn redact_bytes(&self, bytes: &[u8]) -> String {
        self.redact(&String::from_utf8_lossy(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_that_quotes_the_key_does_not_spread_it() {
        let redactor = Redactor::new(["sk-marked-1".into(), "abc".into()]);
        assert_eq!(redactor.redact("bad key:\n\tsk-marked-1\u{7}abc"), "bad key: [secret] abc");
        // Redacted before it is truncated: no half of the secret remains.
        let long = format!("{}sk-marked-1", "x".repeat(MAX_CHARS - 5));
        assert!(!redactor.redact(&long).contains("sk-m"), "{}", redactor.redact(&long));
        assert_eq!(
            redactor.redact_bytes("é".repeat(400).as_bytes()).chars().count(),
            MAX_CHARS + 1
        );
    }
}
