//! Runs a batch's hooks, at its end and on alerts: commands and HTTP requests. SQL hooks run in the
//! rows' database.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longshore::Verdict;
use longshore_batch::completion::{ActionError, ActionRunner};
use longshore_batch::definition::Action;
use longshore_batch::mail::{MailSpool, MailSpoolError};
use longshore_batch::report;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Url};
use serde_json::Value;

use crate::exec::payload::ExecPayload;
use crate::exec::run::{CommandEnd, CommandRun, CommandSettings};
use crate::http::client::{HttpClient, HttpError, HttpRequest};
use crate::http::statuses::{ExpectedStatuses, RequestFailure, RetryConditions};

/// Timeout of a command or request.
const HOOK_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs commands and calls URLs.
pub struct BatchHooks {
    settings: CommandSettings,
    caller: HttpClient,
    office: Arc<dyn MailSpool>,
}

impl BatchHooks {
    /// Commands run in `dir`, requests go through `caller`, and mail into `office`.
    pub fn new(dir: PathBuf, caller: HttpClient, office: Arc<dyn MailSpool>) -> Self {
        Self { settings: CommandSettings::new(dir), caller, office }
    }

    async fn command(&self, argv: &[String], facts: &Value) -> Result<(), ActionError> {
        let exec = ExecPayload::simple(argv.to_vec(), facts.to_string(), HOOK_TIMEOUT);
        let run = CommandRun { exec: &exec, settings: &self.settings, env: Vec::new() };
        let (end, result) =
            run.perform(std::future::pending()).await.map_err(|verdict| not_started(&verdict))?;
        match end {
            CommandEnd::Exited if result.exit_code == Some(0) => Ok(()),
            CommandEnd::Exited => {
                let code = result.exit_code.map_or("a signal".into(), |code| code.to_string());
                Err(transient(format!("{} ended with {code}: {}", argv[0], result.stderr.trim())))
            }
            CommandEnd::TimedOut | CommandEnd::Cancelled => {
                Err(transient(format!("{} ran longer than {HOOK_TIMEOUT:?}", argv[0])))
            }
        }
    }

    async fn post(&self, url: &str, facts: &Value) -> Result<(), ActionError> {
        // No message names the URL, which may hold a secret.
        let url = Url::parse(url).map_err(|error| permanent(format!("its URL: {error}")))?;
        let mut call = HttpRequest::new(Method::POST, url);
        call.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        call.body = Some(facts.to_string().into_bytes());
        (call.timeout, call.follow) = (HOOK_TIMEOUT, true);
        let answer = self.caller.call(call).await.map_err(|error| match error {
            HttpError::NotAllowed(_) | HttpError::BadRedirect(_) => permanent(error.to_string()),
            HttpError::Connection(_) | HttpError::Timeout(_) => transient(error.to_string()),
        })?;
        if ExpectedStatuses::default().contains(answer.status) {
            return Ok(());
        }
        let retryable = RetryConditions::default().contains(RequestFailure::Status(answer.status));
        Err(ActionError { message: format!("the server answered {}", answer.status), retryable })
    }
}

#[async_trait]
impl ActionRunner for BatchHooks {
    async fn run(&self, action: &Action, facts: &Value) -> Result<(), ActionError> {
        match action {
            Action::Command(argv) => self.command(argv, facts).await,
            Action::Http(url) => self.post(url, facts).await,
            Action::Mail(mail) => {
                for message in report::mail::messages(mail, facts) {
                    self.office.enqueue(message).await.map_err(mail_error)?;
                }
                Ok(())
            }
            Action::Sql(_) => Err(permanent("SQL runs in the rows' database, not here".to_owned())),
        }
    }
}

fn mail_error(error: MailSpoolError) -> ActionError {
    ActionError { message: format!("the mail: {}", error.message), retryable: error.retryable }
}

fn transient(message: String) -> ActionError {
    ActionError { message, retryable: true }
}

fn permanent(message: String) -> ActionError {
    ActionError { message, retryable: false }
}

fn not_started(verdict: &Verdict) -> ActionError {
    match verdict {
        Verdict::Fail(failure) => permanent(failure.to_string()),
        Verdict::Retry { failure, .. } => transient(failure.to_string()),
        _ => transient("the command was not started".to_owned()),
    }
}
