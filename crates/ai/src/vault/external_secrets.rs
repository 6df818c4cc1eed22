//! Keys outside the vault, in environment variables and files, and the validation of secrets.

use std::path::PathBuf;

use secrecy::SecretString;
use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

use super::error::VaultError;
use super::private_file::{self, MAX_SECRET_BYTES, OtherReaders};

/// Looks up environment variables.
pub(super) struct Variables(Box<Lookup>);

type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

impl Variables {
    pub(super) fn new(find: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Box::new(find))
    }

    /// Reads a secret from a variable.
    pub(super) fn read(&self, name: &str) -> Result<SecretString, VaultError> {
        let text = (self.0)(name).ok_or_else(|| VaultError::NoVariable(name.to_owned()))?;
        Ok(validate(&Zeroizing::new(text))?.into())
    }
}

impl Default for Variables {
    fn default() -> Self {
        Self::new(|name| std::env::var(name).ok())
    }
}

/// Reads a secret from a file that only its owner may read, without the newline at its end.
pub async fn read_secret_file(path: PathBuf) -> Result<SecretString, VaultError> {
    let reading = spawn_blocking({
        let path = path.clone();
        move || private_file::read(&path, OtherReaders::Refused)
    });
    let bytes =
        reading.await.map_err(|e| VaultError::file(&path, "cannot be read", std::io::Error::other(e)))??;
    let text = std::str::from_utf8(&bytes).map_err(|_| VaultError::BadSecret("is not text"))?;
    Ok(validate(text)?.into())
}

/// Validates a secret that is sent in a header: not empty, one line. Strips the newline that
/// editors and `echo` append.
pub(super) fn validate(text: &str) -> Result<&str, VaultError> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    match text {
        "" => Err(VaultError::BadSecret("is empty")),
        text if text.len() > MAX_SECRET_BYTES => Err(VaultError::BadSecret("is too long")),
        text if text.chars().any(char::is_control) => {
            Err(VaultError::BadSecret("holds more than one line, or control characters"))
        }
        text => Ok(text),
    }
}
