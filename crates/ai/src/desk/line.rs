//! The line to a provider: how all who share an endpoint and a key fare with it, as far as this
//! process has heard.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::ask::{Again, Answer, AskError, Code};
use crate::breaker::{Allow, Breaker, MoneyBreaker};
use crate::gate::Gate;

/// An endpoint and a key.
#[derive(Default)]
pub(super) struct Line {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    breaker: Breaker,
    money: MoneyBreaker,
    gate: Gate,
}

/// A question that is out. Dropped, it was given up.
pub(super) struct Out<'l> {
    line: &'l Line,
    tokens: u64,
    heard: bool,
}

impl Line {
    /// Waits until a question may be sent that needs so many tokens; an error if that is not before
    /// its time is over.
    pub(super) async fn send(&self, tokens: u64, until: Instant) -> Result<Out<'_>, AskError> {
        loop {
            let now = Instant::now();
            let admitted = self.state().admit(now, tokens);
            match admitted {
                Ok(()) => return Ok(Out { line: self, tokens, heard: false }),
                Err(wait) if wait.at < until && !wait.money => sleep_until(wait.at).await,
                Err(wait) => return Err(wait.error(now)),
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nothing is sent before this.
struct Wait {
    at: Instant,
    money: bool,
    why: &'static str,
}

impl Wait {
    fn error(&self, now: Instant) -> AskError {
        let retry_after: Option<Duration> = Some(self.at.saturating_duration_since(now));
        let (code, again) = match self.money {
            true => (Code::OverBudget, Again::Money),
            false => (Code::ProviderError, Again::Later),
        };
        AskError { retry_after, again, ..AskError::new(code, self.why) }
    }
}

impl State {
    /// Lets a question out, or says until when it has to wait. What only looks is asked first: a
    /// breaker that lets a probe through lets one through.
    fn admit(&mut self, now: Instant, tokens: u64) -> Result<(), Wait> {
        let wait = |allow, money, why| match allow {
            Allow::WaitUntil(at) => Err(Wait { at, money, why }),
            Allow::Yes | Allow::Probe => Ok(()),
        };
        wait(self.gate.allow(now, tokens), false, "the provider's limits leave no room in time")?;
        let money = self.money.open_until().filter(|until| now < *until);
        if let Some(at) = money {
            return Err(Wait { at, money: true, why: "there is no money left for this key" });
        }
        wait(self.breaker.allow(now), false, "the provider has failed again and again")?;
        wait(self.money.allow(now), true, "there is no money left for this key")?;
        self.gate.sent(now, tokens);
        Ok(())
    }
}

impl Out<'_> {
    /// Learns from what came back.
    pub(super) fn heard(mut self, result: &Result<Answer, AskError>) {
        self.heard = true;
        let now = Instant::now();
        let headroom = match result {
            Ok(answer) => Some(&answer.headroom),
            Err(error) => error.headroom.as_deref(),
        };
        let mut state = self.line.state();
        state.gate.heard(now, self.tokens, headroom);
        state.breaker.heard(result.as_ref(), now);
        state.money.heard(result.as_ref(), now);
    }
}

impl Drop for Out<'_> {
    fn drop(&mut self) {
        if !self.heard {
            self.line.state().gate.heard(Instant::now(), self.tokens, None);
        }
    }
}
