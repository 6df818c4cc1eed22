//! Mail for batch rows: renders each row and enqueues it in the spool, once per row and period.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use longshore::{Clock, Priority};
use longshore_batch::mail::{MailMetadata, MailSpool, MailSpoolError, OutgoingMail, SpooledMail};

use crate::group_commit::GroupCommitQueue;
use crate::message_builder::Draft;
use crate::mjml::{Compiler, MjmlTemplate, RenderError, Roots, find_include};
use crate::spool::{EnqueueResult, MessageKey, NewMessage};

/// The row's template, addresses or subject do not make a valid message.
const MAIL_ERROR: &str = "MAIL_ERROR";
/// The template could not be rendered.
const MJML_ERROR: &str = "MJML_ERROR";
/// The message could not be written to the spool.
const SPOOL_ERROR: &str = "SPOOL_ERROR";

/// An [`MailSpool`] that enqueues messages in a spool.
///
/// A retry with the same key, from any process and after any crash, returns the stored message's metadata.
pub struct DigestSpool {
    sealer: DigestBuilder,
    queue: GroupCommitQueue,
}

/// Renders parcels to messages without enqueueing them: used by [`DigestSpool`] and by dry runs.
pub struct DigestBuilder {
    compiler: Compiler,
    includes: Vec<PathBuf>,
    clock: Arc<dyn Clock>,
}

impl DigestSpool {
    /// `compiler` renders the templates; they may include files from these folders and their own. Its page
    /// cache is disabled, since no two rows have the same page.
    pub fn new(
        compiler: Compiler,
        queue: GroupCommitQueue,
        includes: Vec<PathBuf>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { sealer: DigestBuilder::new(compiler, includes, clock), queue }
    }
}

impl DigestBuilder {
    /// `compiler` renders the templates; they may include files from these folders and their own.
    pub fn new(compiler: Compiler, includes: Vec<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self { compiler: compiler.cache_bytes(0), includes, clock }
    }

    /// Renders a mail and parses its addresses.
    pub async fn seal(&self, mail: OutgoingMail) -> Result<NewMessage, MailSpoolError> {
        let page = self.compiler.compile(&self.template(&mail)?).await;
        let page = page.map_err(|error| MailSpoolError {
            retryable: error.is_retryable(),
            busy: matches!(error, RenderError::Permit(_)),
            ..permanent(MJML_ERROR, &error)
        })?;
        let OutgoingMail { key, from, to, subject, headers, metadata, .. } = mail;
        let html = page.html.clone();
        let draft = Draft { from, to: vec![to], subject, html, text: None, bounces_to: None, headers };
        let (now, key) = (self.clock.now(), MessageKey::new(&key));
        let key = key.map_err(|error| permanent(MAIL_ERROR, &error))?;
        let letter = draft.build(key, now, Priority::NORMAL, now);
        let mut letter = letter.map_err(|error| permanent(MAIL_ERROR, &error))?;
        letter.metadata =
            Some(serde_json::to_value(&metadata).map_err(|error| permanent(MAIL_ERROR, &error))?);
        Ok(letter)
    }

    fn template(&self, mail: &OutgoingMail) -> Result<MjmlTemplate, MailSpoolError> {
        let roots = match find_include(&mail.mjml) {
            None => Roots::default(),
            Some(_) => {
                let folders = std::iter::once(&mail.folder).chain(&self.includes);
                Roots::new(folders).map_err(|error| permanent(MJML_ERROR, &error))?
            }
        };
        MjmlTemplate::from_text(&mail.mjml, &roots).map_err(|error| permanent(MJML_ERROR, &error))
    }
}

#[async_trait]
impl MailSpool for DigestSpool {
    async fn enqueue(&self, mail: OutgoingMail) -> Result<SpooledMail, MailSpoolError> {
        let (mail_key, metadata) = (mail.key.clone(), mail.metadata.clone());
        let letter = self.sealer.seal(mail).await?;
        let message_id = letter.message_id.clone();
        let report = self.queue.put(letter).await.map_err(|error| MailSpoolError {
            retryable: error.is_retryable(),
            ..permanent(SPOOL_ERROR, &*error)
        })?;
        let created = report.result == EnqueueResult::Created;
        let metadata: MailMetadata = match (created, report.metadata) {
            (true, _) => metadata,
            (false, Some(metadata)) => {
                serde_json::from_value(metadata).map_err(|error| permanent(SPOOL_ERROR, &error))?
            }
            (false, None) => {
                let message =
                    format!("`{mail_key}` is already in the spool, but was not enqueued as a digest");
                return Err(MailSpoolError { code: SPOOL_ERROR, message, retryable: false, busy: false });
            }
        };
        Ok(SpooledMail { mail_key, message_id, created, metadata })
    }
}

/// A permanent error, with its chain of causes.
fn permanent(code: &'static str, error: &dyn std::error::Error) -> MailSpoolError {
    let causes = std::iter::successors(Some(error), |cause| cause.source());
    let message = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    MailSpoolError { code, message, retryable: false, busy: false }
}
