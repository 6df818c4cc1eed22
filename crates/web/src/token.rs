//! What a token looks like: a mark that scanners of leaked secrets can find, and 256 random bits.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use longshore::SessionId;
use longshore::ledger::TokenHash;
use sha2::{Digest, Sha256};

/// What every token begins with.
const MARK: &str = "lsh_";

/// A token that was just made. It is shown once, to whoever asked for it, and kept nowhere.
pub struct FreshToken(String);

impl FreshToken {
    /// A new one.
    #[expect(clippy::new_without_default, reason = "each call gives another value")]
    pub fn new() -> Self {
        let bytes = random();
        Self(format!("{MARK}{}", URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// The token itself.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    pub fn hash(&self) -> TokenHash {
        hash(&self.0)
    }
}

impl fmt::Debug for FreshToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FreshToken(…)")
    }
}

/// 256 bits that nobody can guess: three random identities of 122 bits each, pressed together.
pub(crate) fn random() -> [u8; 32] {
    let mut press = Sha256::new();
    for _ in 0..3 {
        press.update(SessionId::new().as_bytes());
    }
    press.finalize().into()
}

/// What a token hashes to. One round, no salt: a token is random, so neither a dictionary nor a table
/// helps whoever has stolen the store, and every request pays for what is done here.
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
