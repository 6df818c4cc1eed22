//! A row that is written to: its parcel goes to the office under the batch's permit, and POST hears what is
//! in the message that is kept.

use std::time::Duration;

use longshore::Verdict;
use longshore_ai::{Code, Cost};
use tokio::time::timeout_at;

use super::question::NO_PERMIT;
use super::reply::{PRE_ERROR, final_error, timeout, unanswered};
use super::run::Run;
use super::verdict;
use crate::mail::Office;
use crate::step::{Reply, ReplyError};

impl Run<'_> {
    /// The whole of it. Nothing is kept with the unit: the office knows the parcel again by its key.
    pub(super) async fn mailed(&mut self, office: &dyn Office) -> Result<Reply, Verdict> {
        let parcel = match self.prompt().await? {
            Ok(prompt) => prompt,
            Err(error) => return Ok(unanswered(error)),
        };
        let parcel = match serde_json::from_str(&parcel) {
            Ok(parcel) => parcel,
            Err(error) => return Ok(unanswered(final_error(PRE_ERROR, error.to_string()))),
        };
        let (stop, gauge) = (self.context.cancelled(), self.gauge);
        let _leave = self.admitted().await?;
        let out = gauge.ask(Duration::ZERO);
        let posted = tokio::select! {
            biased;
            posted = timeout_at(self.until, office.post(parcel)) => posted,
            () = stop.cancelled() => return Err(verdict::interrupted()),
        };
        let error = match posted {
            Ok(Ok(posted)) => {
                out.back(Ok(()));
                return Ok(self.job.read(posted.answer(), Cost::default()));
            }
            Ok(Err(error)) if error.busy => {
                out.back(Err(Code::Internal.as_str()));
                return Err(Verdict::Snooze(NO_PERMIT));
            }
            Ok(Err(error)) => {
                ReplyError { retryable: error.retryable, ..final_error(error.code, error.message) }
            }
            // It is known again by its key, should it be kept all the same.
            Err(_) => ReplyError { retryable: true, ..timeout("it was not kept in time") },
        };
        out.back(Err(Code::Internal.as_str()));
        Ok(unanswered(error))
    }
}
