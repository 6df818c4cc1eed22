//! `[mail]`: spool, renderer and server of mail.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use longshore::{PoolName, duration};
use longshore_mail::mjml::HttpFormat;
use longshore_mail::send::Security;
use longshore_mail::spool::{HealthThresholds, OnUnanswered};

use super::value;
use crate::error::UsageError;

section! {
    /// `[mail]`
    MailConfig {
        /// The spool's folder.
        #[serde(deserialize_with = "value::path")]
        spool: PathBuf = "spool".into(),
        /// The renderer.
        #[serde(deserialize_with = "value::parsed")]
        renderer: RendererName = RendererName::Embedded,
        /// The request format of a renderer's server.
        form: HttpFormat = HttpFormat::Raw,
        /// The folder where `npm install mjml` was run.
        #[serde(deserialize_with = "value::folder")]
        mjml_dir: PathBuf = ".".into(),
        /// Folders that templates may include from, beside their own.
        includes: Vec<PathBuf> = Vec::new(),
        /// Timeout of one rendering.
        #[serde(deserialize_with = "duration::positive")]
        render_timeout: Duration = Duration::from_secs(30),
        /// The bounded pool of which each rendering holds a permit.
        #[serde(deserialize_with = "value::optional")]
        pool: Option<PoolName> = None,
        /// The folder to which mail goes instead of to a server.
        #[serde(deserialize_with = "value::optional")]
        folder: Option<PathBuf> = None,
        /// Messages to one domain per minute; 0 is no limit.
        per_domain: u32 = 0,
        /// What happens to messages that may have been delivered already.
        on_unanswered: OnUnanswered = OnUnanswered::Again,
        /// How long a message is retried.
        #[serde(deserialize_with = "duration::positive")]
        max_age: Duration = Duration::from_secs(3 * 86_400),
        /// How long sent messages are kept.
        #[serde(with = "duration")]
        keep: Duration = Duration::from_secs(7 * 86_400),
        /// How long failures are kept.
        #[serde(with = "duration")]
        keep_failed: Duration = Duration::from_secs(30 * 86_400),
        /// Due messages, …
        warning: usize = HealthThresholds::default().warning,
        critical: usize = HealthThresholds::default().critical,
        /// … the age of the oldest, …
        #[serde(deserialize_with = "duration::positive")]
        warning_age: Duration = HealthThresholds::default().warning_age,
        #[serde(deserialize_with = "duration::positive")]
        critical_age: Duration = HealthThresholds::default().critical_age,
        /// … and failures within a day, from which the spool is unhealthy.
        warning_failed: usize = HealthThresholds::default().warning_failed,
        critical_failed: usize = HealthThresholds::default().critical_failed,
        smtp: SmtpConfig = SmtpConfig::default(),
    }
}

impl MailConfig {
    /// The limits from which the spool is unhealthy.
    pub fn thresholds(&self) -> HealthThresholds {
        let Self { warning, critical, warning_age, critical_age, .. } = *self;
        let Self { warning_failed, critical_failed, .. } = *self;
        HealthThresholds { warning, critical, warning_age, critical_age, warning_failed, critical_failed }
    }
}

section! {
    /// `[mail.smtp]`: the mail server.
    SmtpConfig {
        /// Its address.
        #[serde(deserialize_with = "value::optional")]
        server: Option<SmtpAddress> = None,
        /// How connections are secured.
        security: Security = Security::StartTls,
        /// Certificate authorities, if not the system's.
        #[serde(deserialize_with = "value::optional")]
        authorities: Option<PathBuf> = None,
        /// The login; empty for none.
        user: String = String::new(),
        /// The password's file.
        #[serde(deserialize_with = "value::optional")]
        password_file: Option<PathBuf> = None,
        /// The name in the greeting; empty for the machine's.
        hello: String = String::new(),
        /// Maximum connections.
        #[serde(deserialize_with = "value::at_least_one")]
        connections: usize = 8,
        /// Timeout of a reply.
        #[serde(deserialize_with = "duration::positive")]
        timeout: Duration = Duration::from_secs(60),
    }
}

/// A mail server's host and port.
#[derive(Debug, Clone)]
pub struct SmtpAddress {
    pub host: String,
    pub port: u16,
}

impl FromStr for SmtpAddress {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        let wrong = || UsageError(format!("`{text}` is not a server, as mail.example.org:587"));
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        match host.is_empty() {
            true => Err(wrong()),
            false => Ok(Self { host: host.trim_matches(['[', ']']).to_owned(), port }),
        }
    }
}

/// The renderer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RendererName {
    Embedded,
    Reference,
    Server(reqwest::Url),
}

impl FromStr for RendererName {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        match text {
            "embedded" => Ok(Self::Embedded),
            "reference" => Ok(Self::Reference),
            _ => match text.parse::<reqwest::Url>() {
                Ok(url) if ["http", "https"].contains(&url.scheme()) => Ok(Self::Server(url)),
                _ => Err(UsageError(
                    "a renderer is embedded, reference, or the http:// address of a server".into(),
                )),
            },
        }
    }
}
