//! Rows that get a message instead of a call to a model: a digest.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use longshore::PoolName;
use serde::{Deserialize, Serialize};

/// The message to a row, once per period.
///
/// `from`, `to`, `subject` and `headers` are templates over the same names as the body, which is
/// the template of [`super::SqlPre`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// How often.
    pub mode: MailMode,
    /// The day on which the batch was started, such as `2026-11-16`, in the file's time zone. It is
    /// the period of [`MailMode::Daily`], also for messages sent after midnight.
    pub day: String,
    /// The sender.
    pub from: String,
    /// The recipient.
    pub to: String,
    /// The subject line.
    pub subject: String,
    /// Further headers of the message.
    pub headers: BTreeMap<String, String>,
    /// The list of PRE with the new items. If it is empty, no message is sent and the row is
    /// skipped.
    pub items: String,
    /// The items' column that grows with each new item; the highest value is bound as `:last`.
    pub last: String,
    /// The row's column with the last item of the previous message: the period of
    /// [`MailMode::Immediate`].
    pub since: Option<String>,
    /// Items with equal values in the columns of a list are one item. Of several lists, the first
    /// applies of which an item has all columns.
    pub same: Vec<Vec<String>>,
    /// The folder of the template's includes.
    pub folder: PathBuf,
    /// The time from the start of a row's run until its message is stored.
    pub timeout: Duration,
    /// A bounded pool: each message holds one of its permits until it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
}

/// How often a row gets a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MailMode {
    /// Once a day.
    #[default]
    Daily,
    /// Whenever there are new items.
    Immediate,
}

impl MailMode {
    /// The name in batch files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Daily => "daily",
            Self::Immediate => "immediate",
        }
    }
}

impl Mail {
    /// The fields of the reply that POST may bind: [`crate::mail::SpooledMail`].
    pub(crate) fn reply_fields() -> Vec<String> {
        ["mail_key", "message_id", "created", "mode", "day", "since", "last", "items"]
            .map(str::to_owned)
            .to_vec()
    }

    /// The additional names in SQL and templates: `:mode` and `:day`.
    pub fn facts(&self) -> [(&'static str, &str); 2] {
        [("mode", self.mode.as_str()), ("day", &self.day)]
    }
}
