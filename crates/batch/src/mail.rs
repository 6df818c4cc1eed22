//! Rows that are written to: PRE makes a [`Parcel`] of a row and what is new to it, and an [`Office`] keeps
//! it so that it goes out once.
//!
//! **Once** is the office's word. A parcel has a key (tenant, type, mode, row, period), and of one key one message
//! is kept. Whoever comes again after a crash may have read newer items; the office then answers with what
//! the message that is kept was told to have ([`Told`]), and POST moves the row's tracker to that and no
//! further.

mod items;

use async_trait::async_trait;
use longshore::{SqlValue, TenantId};
use longshore_ai::Answer;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::definition::{Mail, MailMode, SqlPre};
use crate::prompt::{Prompt, Seen};
use crate::reading::{Known, Reading};
use crate::rows::Row;
use crate::step::{Prepare, PrepareError, RowRun};
use crate::value::{show_key, to_json};

/// Whoever makes messages of parcels and keeps them until they are sent.
#[async_trait]
pub trait Office: Send + Sync + 'static {
    /// Takes a parcel. Once this returned the message goes out, whatever dies; if it fails, or is dropped,
    /// it may all the same, and the parcel may be given again.
    async fn post(&self, parcel: Parcel) -> Result<Posted, OfficeError>;
}

/// A message as PRE made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parcel {
    /// Of one key, one message.
    pub key: String,
    /// From whom.
    pub from: String,
    /// To whom.
    pub to: String,
    /// About what.
    pub subject: String,
    /// Further lines of its head.
    pub headers: Vec<(String, String)>,
    /// What it includes is relative to this folder.
    pub folder: std::path::PathBuf,
    /// What is kept with it.
    pub told: Told,
    /// The page, in MJML.
    pub mjml: String,
}

/// What is in a message, for whoever keeps track.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// How often the row is written to.
    pub mode: MailMode,
    /// The day on which its batch began.
    pub day: String,
    /// Where the message before it ended.
    pub since: Value,
    /// The newest that was looked at for it.
    pub last: Value,
    /// How many items it has.
    pub items: u64,
}

/// What became of a parcel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Posted {
    /// Its key.
    pub mail_key: String,
    /// By which whoever gets it twice can know it.
    pub message_id: String,
    /// Whether it is kept now, and was not before.
    pub created: bool,
    /// What is in the message that is kept.
    #[serde(flatten)]
    pub told: Told,
}

impl Posted {
    /// The same as POST hears it.
    pub(crate) fn answer(&self) -> Answer {
        // Text, numbers and booleans are always JSON.
        let text = serde_json::to_string(self).unwrap_or_default();
        Answer { text, model: "mail".to_owned(), ..Answer::default() }
    }
}

/// Why a parcel was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OfficeError {
    /// Short and stable.
    pub code: &'static str,
    /// In words.
    pub message: String,
    /// Whether trying again may help.
    pub retryable: bool,
    /// Nobody had room for it: it comes again a moment later, and no attempt is used.
    pub busy: bool,
}

/// What the keys of all messages of a tenant's batches of this type and mode begin with.
pub fn keys(tenant: &TenantId, kind: &str, mode: MailMode) -> String {
    format!("{tenant}/{kind}/{}/", mode.as_str())
}

/// PRE of rows that are written to: what it makes is a [`Parcel`], as JSON.
#[derive(Debug)]
pub struct MailPrepare {
    /// What the keys of all its messages begin with.
    keys: String,
    mail: Mail,
    reading: Reading,
    page: Prompt,
    from: Prompt,
    to: Prompt,
    subject: Prompt,
    headers: Vec<(String, Prompt)>,
}

impl MailPrepare {
    /// Compiles the templates of a tenant's batch of this type.
    pub fn compile(
        tenant: &TenantId,
        kind: &str,
        pre: &SqlPre,
        mail: &Mail,
    ) -> Result<Self, String> {
        let page = Prompt::html(&pre.template, &pre.template_name)
            .map_err(|error| format!("{}: {error}", pre.template_name))?;
        let plain = |name: &str, text: &str| {
            Prompt::compile(text, &format!("mail.{name}"))
                .map_err(|error| format!("mail.{name}: {error}"))
        };
        let facts = mail.facts().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let headers = mail.headers.iter();
        Ok(Self {
            keys: keys(tenant, kind, mail.mode),
            reading: Reading {
                sql: pre.sql.clone(),
                lists: pre.lists.clone(),
                facts: facts.into(),
            },
            page,
            from: plain("from", &mail.from)?,
            to: plain("to", &mail.to)?,
            subject: plain("subject", &mail.subject)?,
            headers: headers
                .map(|(name, text)| Ok((name.clone(), plain(name, text)?)))
                .collect::<Result<_, String>>()?,
            mail: mail.clone(),
        })
    }

    /// The message for a row, unless there is nothing to tell.
    pub async fn parcel(&self, run: &RowRun<'_>) -> Result<Parcel, PrepareError> {
        let Known { mut row, mut lists } = self.reading.read(run).await?;
        let items = lists.remove(&self.mail.items).unwrap_or_default();
        if items.is_empty() {
            return Err(PrepareError::Skip("nothing is new".to_owned()));
        }
        let last = items::last(&items, &self.mail.last).map_err(PrepareError::hopeless)?;
        let items = items::distinct(items, &self.mail.same);
        let told = Told {
            mode: self.mail.mode,
            day: self.mail.day.clone(),
            since: self.since(&row).map_or(Value::Null, to_json),
            last: to_json(&last),
            items: items.len() as u64,
        };
        let key = self.key(run.key, &row);
        lists.insert(self.mail.items.clone(), items);
        for (name, value) in self.mail.facts() {
            row.columns.push((name.to_owned(), SqlValue::Text(value.to_owned())));
        }
        let seen = Seen::new(&row, &lists);
        let say = |prompt: &Prompt| prompt.render_seen(&seen).map_err(PrepareError::hopeless);
        let line = |prompt: &Prompt| say(prompt).map(|text| text.trim().to_owned());
        let headers = self.headers.iter().map(|(name, text)| Ok((name.clone(), line(text)?)));
        Ok(Parcel {
            key,
            from: line(&self.from)?,
            to: line(&self.to)?,
            subject: line(&self.subject)?,
            headers: headers.collect::<Result<_, PrepareError>>()?,
            folder: self.mail.folder.clone(),
            told,
            mjml: say(&self.page)?,
        })
    }

    fn since<'r>(&self, row: &'r Row) -> Option<&'r SqlValue> {
        let column = self.mail.since.as_ref()?;
        row.columns.iter().find(|(name, _)| name == column).map(|(_, value)| value)
    }

    /// One per row and period: a day, or all between two places of the tracker.
    fn key(&self, key: &SqlValue, row: &Row) -> String {
        let period = match self.mail.mode {
            MailMode::Daily => self.mail.day.clone(),
            MailMode::Immediate => self.since(row).map(show_key).unwrap_or_default(),
        };
        let key = show_key(key).replace('%', "%25").replace('/', "%2f");
        format!("{}{key}/{period}", self.keys)
    }
}

#[async_trait]
impl Prepare for MailPrepare {
    async fn prepare(&self, run: &RowRun<'_>) -> Result<String, PrepareError> {
        let parcel = self.parcel(run).await?;
        serde_json::to_string(&parcel).map_err(|error| PrepareError::hopeless(error.to_string()))
    }
}
