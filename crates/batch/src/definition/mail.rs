//! Rows that are written to instead of asked about: a digest.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What goes to a row, once per period.
///
/// `from`, `to`, `subject` and `headers` are templates over the same names as the page, which is the
/// template of [`super::SqlPre`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// How often.
    pub mode: MailMode,
    /// The day on which the batch was started, as `2026-11-16`, in the file's zone: the period of
    /// [`MailMode::Daily`], also of rows that are written to after midnight.
    pub day: String,
    /// From whom.
    pub from: String,
    /// To whom.
    pub to: String,
    /// About what.
    pub subject: String,
    /// Further lines of the message's head.
    pub headers: BTreeMap<String, String>,
    /// The list of PRE that has what is new. Nothing new: nothing is written, and the row is skipped.
    pub items: String,
    /// The items' column by which they are told from newer ones; the highest is bound as `:last`.
    pub last: String,
    /// The row's column that says where the last message ended; the period of [`MailMode::Immediate`].
    pub since: Option<String>,
    /// Items that are alike in the columns of a list are one item. Of several lists the first counts of
    /// which an item has all columns.
    pub same: Vec<Vec<String>>,
    /// What the template includes is relative to this folder.
    pub folder: PathBuf,
}

/// How often a row is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MailMode {
    /// Once a day.
    #[default]
    Daily,
    /// Whenever there is something new.
    Immediate,
}

impl MailMode {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Daily => "daily",
            Self::Immediate => "immediate",
        }
    }
}

impl Mail {
    /// What POST may bind: [`crate::mail::Posted`].
    pub fn schema() -> Value {
        let fields = ["mail_key", "message_id", "created", "mode", "day", "since", "last", "items"];
        let properties: BTreeMap<_, _> = fields.iter().map(|name| (*name, json!({}))).collect();
        json!({ "type": "object", "required": fields, "properties": properties })
    }

    /// What SQL and templates know beside the row: `:mode` and `:day`.
    pub fn facts(&self) -> [(&'static str, &str); 2] {
        [("mode", self.mode.as_str()), ("day", &self.day)]
    }
}
