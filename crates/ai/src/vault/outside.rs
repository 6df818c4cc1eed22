//! Keys outside the vault: in variables and files. And what a secret must be, wherever it is.

use std::path::PathBuf;

use secrecy::SecretString;
use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

use super::error::VaultError;
use super::private_file::{self, LONGEST, Others};

/// Where variables are found.
pub(super) struct Variables(Box<Find>);

type Find = dyn Fn(&str) -> Option<String> + Send + Sync;

impl Variables {
    pub(super) fn new(find: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Box::new(find))
    }

    /// The secret in a variable.
    pub(super) fn read(&self, name: &str) -> Result<SecretString, VaultError> {
        let text = (self.0)(name).ok_or_else(|| VaultError::NoVariable(name.to_owned()))?;
        Ok(sound(&Zeroizing::new(text))?.into())
    }
}

impl Default for Variables {
    fn default() -> Self {
        Self::new(|name| std::env::var(name).ok())
    }
}

/// The secret in a file that nobody else may read, without the newline at its end.
pub async fn read_secret_file(path: PathBuf) -> Result<SecretString, VaultError> {
    let reading = spawn_blocking({
        let path = path.clone();
        move || private_file::read(&path, Others::Refused)
    });
    let bytes = reading
        .await
        .map_err(|e| VaultError::file(&path, "cannot be read", std::io::Error::other(e)))??;
    let text = std::str::from_utf8(&bytes).map_err(|_| VaultError::BadSecret("is not text"))?;
    Ok(sound(text)?.into())
}

/// A secret that can be sent in a header: not empty, in one line. A newline at its end is what
/// editors and `echo` leave.
pub(super) fn sound(text: &str) -> Result<&str, VaultError> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    match text {
        "" => Err(VaultError::BadSecret("is empty")),
        text if text.len() > LONGEST => Err(VaultError::BadSecret("is too long")),
        text if text.chars().any(char::is_control) => {
            Err(VaultError::BadSecret("holds more than one line, or control characters"))
        }
        text => Ok(text),
    }
}
