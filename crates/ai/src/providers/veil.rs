//! What may be said aloud of what a provider said: one line, not long, and never a secret, even where the
//! provider quotes the key that it refuses.

use secrecy::{ExposeSecret, SecretString};

/// How many characters of a provider's words are handed on.
const MOST: usize = 300;

/// Shorter values are in every text by chance.
const SHORTEST: usize = 6;

/// The secrets of one provider.
#[derive(Debug, Default)]
pub(crate) struct Veil(Vec<SecretString>);

impl Veil {
    pub(crate) fn new(secrets: impl IntoIterator<Item = SecretString>) -> Self {
        let secrets = secrets.into_iter();
        Self(secrets.filter(|secret| secret.expose_secret().len() >= SHORTEST).collect())
    }

    /// A text on one line, without secrets, and cut.
    pub(crate) fn line(&self, text: &str) -> String {
        let hidden = self
            .0
            .iter()
            .fold(text.to_owned(), |text, secret| text.replace(secret.expose_secret(), "[secret]"));
        let words = hidden.split(|c: char| c.is_whitespace() || c.is_control());
        let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(MOST) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        }
    }

    /// The same of bytes.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> String {
        self.line(&String::from_utf8_lossy(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_that_quotes_the_key_does_not_spread_it() {
        let veil = Veil::new(["sk-marked-1".into(), "abc".into()]);
        assert_eq!(veil.line("bad key:\n\tsk-marked-1\u{7}abc"), "bad key: [secret] abc");
        // Hidden before it is cut: no half of it remains.
        let long = format!("{}sk-marked-1", "x".repeat(MOST - 5));
        assert!(!veil.line(&long).contains("sk-m"), "{}", veil.line(&long));
        assert_eq!(veil.bytes("é".repeat(400).as_bytes()).chars().count(), MOST + 1);
    }
}
