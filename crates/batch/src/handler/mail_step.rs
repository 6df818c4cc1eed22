//! A row that gets a message: the message is put into the spool under the batch's permit, and POST
//! receives the stored message's metadata.

use std::time::Duration;

use longshore::Verdict;
use longshore_ai::{Code, Cost};
use tokio::time::timeout_at;

use super::ask::NO_PERMIT_DELAY;
use super::compiled_batch::MailStep;
use super::reply::{error_reply, final_error, timeout_error};
use super::run::RowExecution;
use super::verdict;
use crate::pre_post::{ReplyError, RowReply};

impl RowExecution<'_> {
    /// Prepares and spools the message. The unit has no checkpoint: the spool deduplicates by the
    /// message's key.
    pub(super) async fn send_mail(&mut self, step: &MailStep) -> Result<RowReply, Verdict> {
        let message = match self.prepare(step.prepare.message(&self.row)).await? {
            Ok(message) => message,
            Err(error) => return Ok(error_reply(error)),
        };
        let (stop, gauge) = (self.context.cancelled(), self.gauge);
        let _permits = self.acquire_permits().await?;
        let out = gauge.start(Duration::ZERO);
        let posted = tokio::select! {
            biased;
            posted = timeout_at(self.deadline, step.spool.enqueue(message)) => posted,
            () = stop.cancelled() => return Err(verdict::interrupted()),
        };
        let error = match posted {
            Ok(Ok(posted)) => {
                out.finish(Ok(()));
                let json = serde_json::to_value(&posted).ok();
                return Ok(RowReply { answer: None, json, error: None, cost: Cost::default() });
            }
            Ok(Err(error)) if error.busy => {
                out.finish(Err(Code::Internal.as_str()));
                return Err(Verdict::Snooze(NO_PERMIT_DELAY));
            }
            Ok(Err(error)) => {
                ReplyError { retryable: error.retryable, ..final_error(error.code, error.message) }
            }
            // If the spool stored the message after all, a retry finds it by its key.
            Err(_) => ReplyError { retryable: true, ..timeout_error("the message was not stored in time") },
        };
        out.finish(Err(Code::Internal.as_str()));
        Ok(error_reply(error))
    }
}
