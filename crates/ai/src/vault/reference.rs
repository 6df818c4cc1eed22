//! Key references of profiles: the vault, an environment variable, or a file.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use longshore::KeyName;

use super::error::VaultError;

/// Where a key is stored.
///
/// A variable or a file belongs to the whole process. A user that can write a profile with such a
/// reference, and choose its endpoint, can have the secret sent there. So only operators may write
/// profiles.
///
/// ```
/// use longshore_ai::KeyRef;
///
/// assert!(matches!("env:OPENAI_API_KEY".parse(), Ok(KeyRef::Variable(_))));
/// assert!(matches!("file:/etc/longshore/openai".parse(), Ok(KeyRef::File(_))));
/// assert!(matches!("openai".parse(), Ok(KeyRef::Vault { version: None, .. })));
/// assert!(matches!("openai@2".parse(), Ok(KeyRef::Vault { version: Some(2), .. })));
/// assert!("sk-proj-0123456789".parse::<KeyRef>().is_err(), "a secret is no reference");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KeyRef {
    /// In the vault: `NAME`, or `NAME@VERSION` for a fixed version.
    Vault {
        /// Its name.
        name: KeyName,
        /// A fixed version; otherwise the active one.
        version: Option<u32>,
    },
    /// In an environment variable: `env:NAME`.
    Variable(String),
    /// In a file that only its owner may read: `file:PATH`.
    File(PathBuf),
}

/// Prefixes of well-known providers' keys.
const SECRET_PREFIXES: [&str; 6] = ["sk-", "sk_", "AIza", "xai-", "gsk_", "hf_"];

/// Names have no part as long as this.
const MAX_NAME_PART: usize = 32;

/// The errors do not repeat the text: users paste the secret itself here.
impl FromStr for KeyRef {
    type Err = VaultError;

    fn from_str(text: &str) -> Result<Self, VaultError> {
        if let Some(name) = text.strip_prefix("env:") {
            return variable(name).ok_or(VaultError::BadReference("names no variable"));
        }
        if let Some(path) = text.strip_prefix("file:") {
            return match path {
                "" => Err(VaultError::BadReference("names no file")),
                path => Ok(Self::File(path.into())),
            };
        }
        if looks_secret(text) {
            return Err(VaultError::BadReference("looks like a secret, not like a name"));
        }
        let (name, version) = match text.split_once('@') {
            Some((name, version)) => (name, Some(version)),
            None => (text, None),
        };
        let not_a_name = VaultError::BadReference("is not a name of letters, digits, and - _ . :");
        let name = KeyName::new(name).map_err(|_| not_a_name)?;
        let version = version.map(str::parse).transpose();
        let version = version.map_err(|_| VaultError::BadReference("has no number after the @"))?;
        Ok(Self::Vault { name, version })
    }
}

impl fmt::Display for KeyRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vault { name, version: None } => write!(f, "{name}"),
            Self::Vault { name, version: Some(version) } => write!(f, "{name}@{version}"),
            Self::Variable(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

fn variable(name: &str) -> Option<KeyRef> {
    let sound = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = name.starts_with(|c: char| !c.is_ascii_digit());
    (begins && name.chars().all(sound)).then(|| KeyRef::Variable(name.to_owned()))
}

fn looks_secret(text: &str) -> bool {
    let longest = text.split(['-', '_', '.', ':']).map(str::len).max().unwrap_or(0);
    SECRET_PREFIXES.iter().any(|begin| text.starts_with(begin)) || longest >= MAX_NAME_PART
}
