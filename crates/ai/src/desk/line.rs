//! The line to a provider: how all who share an endpoint and a key fare with it.

use std::sync::{Mutex, PoisonError};

use tokio::time::{Instant, sleep_until};

use crate::ask::{Answer, AskError, Code};
use crate::breaker::{Allow, Health};

/// How an endpoint is, as far as this process has heard.
#[derive(Default)]
pub(super) struct Line {
    health: Mutex<Health>,
}

impl Line {
    /// Waits until a question may be sent that needs so many tokens; an error if that is not before
    /// its time is over.
    pub(super) async fn ready(&self, tokens: u64, until: Instant) -> Result<(), AskError> {
        loop {
            let now = Instant::now();
            let allowed = self.health().allow(now, tokens);
            match allowed {
                Allow::Yes | Allow::Probe => return Ok(()),
                Allow::WaitUntil(at) if at < until => sleep_until(at).await,
                Allow::WaitUntil(at) => {
                    return Err(AskError {
                        retry_after: Some(at.saturating_duration_since(now)),
                        ..AskError::new(Code::ProviderError, "the provider does not answer now")
                    });
                }
            }
        }
    }

    /// Learns from what came back.
    pub(super) fn heard(&self, result: &Result<Answer, AskError>) {
        self.health().heard(result, Instant::now());
    }

    fn health(&self) -> std::sync::MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
