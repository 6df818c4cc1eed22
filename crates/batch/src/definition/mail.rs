//! Rows that get a message instead of a call to a model: a digest.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

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
    /// The schema of the reply that POST may bind: [`crate::mail::Posted`].
    pub fn schema() -> Value {
        let fields = ["mail_key", "message_id", "created", "mode", "day", "since", "last", "items"];
        let properties: BTreeMap<_, _> = fields.iter().map(|name| (*name, json!({}))).collect();
        json!({ "type": "object", "required": fields, "properties": properties })
    }

    /// The additional names in SQL and templates: `:mode` and `:day`.
    pub fn facts(&self) -> [(&'static str, &str); 2] {
        [("mode", self.mode.as_str()), ("day", &self.day)]
    }
}
