//! Messages to rows: PRE makes a [`OutgoingMail`] from a row and its new items, and a spool ([`MailSpool`])
//! stores it so that it is sent once.
//!
//! **Exactly one message per key** is the spool's guarantee. The key is made of tenant, type, mode,
//! row and period. A retry after a crash may have read newer items; the spool then returns the
//! metadata of the stored message ([`MailMetadata`]), and POST moves the row's tracker to that item and no
//! further.

mod items;

use async_trait::async_trait;
use longshore::{SqlValue, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::definition::{Mail, MailMode, SqlPre};
use crate::pre_post::{PrepareError, RowRun};
use crate::prompt::{PromptTemplate, TemplateContext};
use crate::row_loader::{LoadedRow, RowLoader};
use crate::rows::Row;
use crate::sql_json::{show_key, to_json};

/// A mail spool: renders messages and stores them until they are sent.
#[async_trait]
pub trait MailSpool: Send + Sync + 'static {
    /// Stores a message. Once this returns, the message will be sent despite any crash. If it fails
    /// or is dropped, the message may be sent all the same, and the caller may repeat the call.
    async fn enqueue(&self, mail: OutgoingMail) -> Result<SpooledMail, MailSpoolError>;
}

/// A message made by PRE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingMail {
    /// The dedup key: one message per key.
    pub key: String,
    /// The sender.
    pub from: String,
    /// The recipient.
    pub to: String,
    /// The subject line.
    pub subject: String,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// The folder of the template's includes.
    pub folder: std::path::PathBuf,
    /// The metadata stored with it.
    pub metadata: MailMetadata,
    /// The body in MJML.
    pub mjml: String,
}

/// Metadata of a message, by which POST tracks what was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailMetadata {
    /// How often the row gets a message.
    pub mode: MailMode,
    /// The day on which its batch was started.
    pub day: String,
    /// The last item of the previous message.
    pub since: Value,
    /// The newest item read for it.
    pub last: Value,
    /// The number of its items.
    pub items: u64,
}

/// The stored message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SpooledMail {
    /// The dedup key.
    pub mail_key: String,
    /// The `Message-ID`, by which a recipient recognises a duplicate.
    pub message_id: String,
    /// Whether this call stored it; false if it was stored before.
    pub created: bool,
    /// The metadata of the stored message.
    #[serde(flatten)]
    pub metadata: MailMetadata,
}

/// Why a message was not stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct MailSpoolError {
    /// A short, stable code.
    pub code: &'static str,
    /// A message for people.
    pub message: String,
    /// Whether a retry may help.
    pub retryable: bool,
    /// The spool or renderer is at capacity: the row is snoozed and no attempt is used.
    pub busy: bool,
}

/// The prefix of the dedup keys of a tenant's batches of this type and mode.
pub fn key_prefix(tenant: &TenantId, kind: &str, mode: MailMode) -> String {
    format!("{tenant}/{kind}/{}/", mode.as_str())
}

/// PRE of mail batches: makes a [`OutgoingMail`].
#[derive(Debug)]
pub struct MailPrepare {
    /// The prefix of its dedup keys.
    key_prefix: String,
    mail: Mail,
    row_loader: RowLoader,
    page: PromptTemplate,
    from: PromptTemplate,
    to: PromptTemplate,
    subject: PromptTemplate,
    headers: Vec<(String, PromptTemplate)>,
}

impl MailPrepare {
    /// Compiles the templates of a tenant's batch of this type.
    pub fn compile(tenant: &TenantId, kind: &str, pre: &SqlPre, mail: &Mail) -> Result<Self, String> {
        let page = PromptTemplate::html(&pre.template, &pre.template_name)
            .map_err(|error| format!("{}: {error}", pre.template_name))?;
        let plain = |name: &str, text: &str| {
            PromptTemplate::compile(text, &format!("mail.{name}"))
                .map_err(|error| format!("mail.{name}: {error}"))
        };
        let facts = mail.facts().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let headers = mail.headers.iter();
        Ok(Self {
            key_prefix: key_prefix(tenant, kind, mail.mode),
            row_loader: RowLoader { sql: pre.sql.clone(), lists: pre.lists.clone(), facts: facts.into() },
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

    /// The message for a row; `Skip` if there are no new items.
    pub async fn message(&self, run: &RowRun<'_>) -> Result<OutgoingMail, PrepareError> {
        let LoadedRow { mut row, mut lists } = self.row_loader.read(run).await?;
        let items = lists.remove(&self.mail.items).unwrap_or_default();
        if items.is_empty() {
            return Err(PrepareError::Skip("no new items".to_owned()));
        }
        let last = items::last(&items, &self.mail.last).map_err(PrepareError::permanent)?;
        let items = items::distinct(items, &self.mail.same);
        let metadata = MailMetadata {
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
        let context = TemplateContext::new(&row, &lists);
        let render = |prompt: &PromptTemplate| prompt.render_with(&context).map_err(PrepareError::permanent);
        let render_line = |prompt: &PromptTemplate| render(prompt).map(|text| text.trim().to_owned());
        let headers = self.headers.iter().map(|(name, text)| Ok((name.clone(), render_line(text)?)));
        Ok(OutgoingMail {
            key,
            from: render_line(&self.from)?,
            to: render_line(&self.to)?,
            subject: render_line(&self.subject)?,
            headers: headers.collect::<Result<_, PrepareError>>()?,
            folder: self.mail.folder.clone(),
            metadata,
            mjml: render(&self.page)?,
        })
    }

    fn since<'r>(&self, row: &'r Row) -> Option<&'r SqlValue> {
        let column = self.mail.since.as_ref()?;
        row.columns.iter().find(|(name, _)| name == column).map(|(_, value)| value)
    }

    /// The dedup key: one per row and period. The period is a day, or the span between two
    /// positions of the tracker.
    fn key(&self, key: &SqlValue, row: &Row) -> String {
        let period = match self.mail.mode {
            MailMode::Daily => self.mail.day.clone(),
            MailMode::Immediate => self.since(row).map(show_key).unwrap_or_default(),
        };
        let key = show_key(key).replace('%', "%25").replace('/', "%2f");
        format!("{}{key}/{period}", self.key_prefix)
    }
}
