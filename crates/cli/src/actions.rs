//! What a batch does at its end and when somebody should look, beside SQL: commands and HTTP.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longshore::Verdict;
use longshore_batch::definition::Action;
use longshore_batch::end::{Act, ActError};
use longshore_pool::warden::Warden;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Url};
use serde_json::Value;

use crate::exec::payload::Exec;
use crate::exec::run::{End, Run};
use crate::http::call::{Call, CallError, Caller};
use crate::http::statuses::{Expect, RetryOn, Trouble};

/// Longest command or call.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs commands and calls URLs.
pub struct Actions {
    dir: PathBuf,
    warden: Arc<Warden>,
    caller: Caller,
}

impl Actions {
    /// Commands run in `dir`, and URLs are called through `caller`.
    pub fn new(dir: PathBuf, caller: Caller) -> Self {
        Self { dir, warden: Warden::shared(), caller }
    }

    async fn command(&self, argv: &[String], facts: &Value) -> Result<(), ActError> {
        let exec = Exec::simple(argv.to_vec(), facts.to_string(), LIMIT);
        let run = Run { exec: &exec, dir: &self.dir, env: Vec::new(), warden: &self.warden };
        match run.perform(std::future::pending()).await {
            End::Exited(result) if result.exit_code == Some(0) => Ok(()),
            End::Exited(result) => {
                let code = result.exit_code.map_or("a signal".into(), |code| code.to_string());
                Err(failed(format!("{} ended with {code}: {}", argv[0], result.stderr.trim())))
            }
            End::TimedOut(_) | End::Cancelled(_) => {
                Err(failed(format!("{} ran longer than {LIMIT:?}", argv[0])))
            }
            End::NotStarted(verdict) => Err(not_started(&verdict)),
        }
    }

    async fn post(&self, url: &str, facts: &Value) -> Result<(), ActError> {
        // Not the URL in any message: it may hold a secret.
        let url = Url::parse(url).map_err(|error| hopeless(format!("its URL: {error}")))?;
        let mut call = Call::new(Method::POST, url);
        call.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        call.body = Some(facts.to_string().into_bytes());
        (call.timeout, call.follow) = (LIMIT, true);
        let answer = self.caller.call(call).await.map_err(|error| match error {
            CallError::NotAllowed(_) | CallError::BadRedirect(_) => hopeless(error.to_string()),
            CallError::Connection(_) | CallError::Timeout(_) => failed(error.to_string()),
        })?;
        if Expect::default().contains(answer.status) {
            return Ok(());
        }
        let retryable = RetryOn::default().contains(Trouble::Status(answer.status));
        Err(ActError { message: format!("the server answered {}", answer.status), retryable })
    }
}

#[async_trait]
impl Act for Actions {
    async fn act(&self, action: &Action, facts: &Value) -> Result<(), ActError> {
        match action {
            Action::Command(argv) => self.command(argv, facts).await,
            Action::Http(url) => self.post(url, facts).await,
            Action::Sql(_) => Err(hopeless("SQL is for the rows' database to run".to_owned())),
        }
    }
}

fn failed(message: String) -> ActError {
    ActError { message, retryable: true }
}

fn hopeless(message: String) -> ActError {
    ActError { message, retryable: false }
}

fn not_started(verdict: &Verdict) -> ActError {
    match verdict {
        Verdict::Fail(failure) => hopeless(failure.to_string()),
        Verdict::Retry { failure, .. } => failed(failure.to_string()),
        _ => failed("the command was not started".to_owned()),
    }
}
