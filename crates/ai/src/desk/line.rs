//! The line to a provider: how all who share an endpoint, a key or a model's limits fare with it, as
//! far as this process has heard.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::ask::{Again, Answer, AskError, Code};
use crate::breaker::{Allow, Breaker, MoneyBreaker};
use crate::gate::Gate;

/// All lines. They outlive the profiles that use them: a provider is no healthier because a profile
/// was read again.
#[derive(Default)]
pub(super) struct Lines {
    endpoints: Mutex<HashMap<String, Arc<Mutex<Breaker>>>>,
    keys: Mutex<HashMap<String, Arc<Mutex<MoneyBreaker>>>>,
    models: Mutex<HashMap<String, Arc<Mutex<Gate>>>>,
}

/// What tells lines apart.
pub(super) struct LineName {
    /// The server. What it does to one it does to all.
    pub(super) endpoint: String,
    /// The key, and whose it is. Its money is one for all.
    pub(super) key: String,
    /// The model. Limits are told for a key and a model.
    pub(super) model: String,
}

impl Lines {
    /// The line of this name.
    pub(super) fn find(&self, name: &LineName) -> Line {
        let LineName { endpoint, key, model } = name;
        let key = format!("{endpoint} {key}");
        Line {
            gate: shared(&self.models, format!("{key} {model}")),
            money: shared(&self.keys, key),
            breaker: shared(&self.endpoints, endpoint.clone()),
        }
    }
}

fn shared<T: Default>(
    known: &Mutex<HashMap<String, Arc<Mutex<T>>>>,
    name: String,
) -> Arc<Mutex<T>> {
    Arc::clone(lock(known).entry(name).or_default())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An endpoint, a key and a model.
pub(super) struct Line {
    breaker: Arc<Mutex<Breaker>>,
    money: Arc<Mutex<MoneyBreaker>>,
    gate: Arc<Mutex<Gate>>,
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
            match self.admit(now, tokens) {
                Ok(()) => return Ok(Out { line: self, tokens, heard: false }),
                Err(wait) if wait.at < until && !wait.money => sleep_until(wait.at).await,
                Err(wait) => return Err(wait.error(now)),
            }
        }
    }

    /// Until when a question of so many tokens could not be sent, as far as is known now. Where only
    /// money is missing, nobody waits.
    pub(super) fn closed_until(&self, now: Instant, tokens: u64) -> Option<Instant> {
        let gate = match lock(&self.gate).allow(now, tokens) {
            Allow::WaitUntil(at) => Some(at),
            Allow::Yes | Allow::Probe => None,
        };
        gate.max(lock(&self.breaker).open_until()).filter(|until| now < *until)
    }

    /// Lets a question out, or says until when it has to wait. What only looks is asked first: a
    /// breaker that lets a probe through lets one through.
    fn admit(&self, now: Instant, tokens: u64) -> Result<(), Wait> {
        let wait = |allow, money, why| match allow {
            Allow::WaitUntil(at) => Err(Wait { at, money, why }),
            Allow::Yes | Allow::Probe => Ok(()),
        };
        let (mut gate, mut money) = (lock(&self.gate), lock(&self.money));
        wait(gate.allow(now, tokens), false, "the provider's limits leave no room in time")?;
        if let Some(at) = money.open_until().filter(|until| now < *until) {
            return Err(Wait { at, money: true, why: NO_MONEY });
        }
        wait(lock(&self.breaker).allow(now), false, "the provider has failed again and again")?;
        wait(money.allow(now), true, NO_MONEY)?;
        gate.sent(now, tokens);
        Ok(())
    }
}

const NO_MONEY: &str = "there is no money left for this key";

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

impl Out<'_> {
    /// Learns from what came back.
    pub(super) fn heard(mut self, result: &Result<Answer, AskError>) {
        self.heard = true;
        let now = Instant::now();
        let headroom = match result {
            Ok(answer) => Some(&answer.headroom),
            Err(error) => error.headroom.as_deref(),
        };
        lock(&self.line.gate).heard(now, self.tokens, headroom);
        lock(&self.line.breaker).heard(result.as_ref(), now);
        lock(&self.line.money).heard(result.as_ref(), now);
    }
}

impl Drop for Out<'_> {
    fn drop(&mut self) {
        if !self.heard {
            lock(&self.line.gate).heard(Instant::now(), self.tokens, None);
        }
    }
}
