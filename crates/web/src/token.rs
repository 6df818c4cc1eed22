//! API tokens: a prefix that secret scanners recognise, and 256 random bits.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use longshore::SessionId;
use longshore::accounts::TokenHash;
use sha2::{Digest, Sha256};

/// The prefix of every token.
const PREFIX: &str = "lsh_";

/// A newly created token. It is shown to the user once and never stored.
pub struct FreshToken(String);

impl FreshToken {
    /// Creates a random token.
    #[expect(clippy::new_without_default, reason = "each call gives another value")]
    pub fn new() -> Self {
        let bytes = random_bytes();
        Self(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// The token in plain text.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The hash that is stored.
    pub fn hash(&self) -> TokenHash {
        hash(&self.0)
    }
}

impl fmt::Debug for FreshToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FreshToken(…)")
    }
}

/// 256 unpredictable bits: the hash of three random ids of 122 bits each.
pub(crate) fn random_bytes() -> [u8; 32] {
    let mut hasher = Sha256::new();
    for _ in 0..3 {
        hasher.update(SessionId::new().as_bytes());
    }
    hasher.finalize().into()
}

/// The hash of a token. One round without salt: tokens are random, so neither a dictionary nor a table helps
/// an attacker with a stolen store, and every request pays for this.
pub fn hash(token: &str) -> TokenHash {
    TokenHash(Sha256::digest(token.as_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_tokens_are_the_same_and_none_is_printed() {
        let (one, other) = (FreshToken::new(), FreshToken::new());
        assert_ne!(one.expose(), other.expose());
        assert!(one.expose().starts_with("lsh_") && one.expose().len() == 47, "{}", one.expose());
        assert!(!format!("{one:?}").contains(&one.expose()[4..]));
        assert_eq!(one.hash(), hash(one.expose()));
        assert_ne!(one.hash(), other.hash());
    }
}
