//! What a batch does at its end and when somebody should look, beside SQL: commands and HTTP.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use longshore::Verdict;
use longshore_batch::definition::Action;
use longshore_batch::end::{Act, ActError};
use serde_json::Value;

use crate::exec::payload::Exec;
use crate::exec::run::{End, Run};
use crate::exec::warden::Warden;

/// Longest command or call.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs commands and calls URLs.
pub struct Actions {
    dir: PathBuf,
    warden: Warden,
    http: reqwest::Client,
}

impl Actions {
    /// Commands run in `dir`.
    pub fn new(dir: PathBuf) -> anyhow::Result<Self> {
        let agent = concat!("longshore/", env!("CARGO_PKG_VERSION"));
        let http = reqwest::Client::builder().timeout(LIMIT).user_agent(agent).build()?;
        Ok(Self { dir, warden: Warden::new(), http })
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
        let sent = self.http.post(url).header("content-type", "application/json");
        // Not the URL in the message: it may hold a secret.
        let answer = sent.body(facts.to_string()).send().await;
        let answer = answer.map_err(|error| failed(words(&error.without_url())))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let retryable = status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429);
        Err(ActError { message: format!("the server answered {status}"), retryable })
    }
}

#[async_trait]
impl Act for Actions {
    async fn act(&self, action: &Action, facts: &Value) -> Result<(), ActError> {
        match action {
            Action::Command(argv) => self.command(argv, facts).await,
            Action::Http(url) => self.post(url, facts).await,
            Action::Sql(_) => Err(ActError {
                message: "SQL is for the rows' database to run".into(),
                retryable: false,
            }),
        }
    }
}

fn failed(message: String) -> ActError {
    ActError { message, retryable: true }
}

fn not_started(verdict: &Verdict) -> ActError {
    match verdict {
        Verdict::Fail(failure) => ActError { message: failure.to_string(), retryable: false },
        Verdict::Retry { failure, .. } => failed(failure.to_string()),
        _ => failed("the command was not started".to_owned()),
    }
}

fn words(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |words, cause| format!("{words}: {cause}"))
}
