//! Limits per caller, so that one token cannot take what the server has for all: requests per second,
//! concurrent requests, and memory for request bodies.
//!
//! A request without a token counts for its client's address.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use longshore::TokenId;
use tokio::time::Instant;

use crate::app_state::{AppState, ConnectionLimits};
use crate::auth::Caller;
use crate::problem::Problem;

/// The window in which requests are counted.
const WINDOW: Duration = Duration::from_secs(1);
/// Callers without a request are forgotten when more than this number are known.
const MAX_IDLE_CALLERS: usize = 1_000;
/// The part of the memory for bodies that one caller may use.
const CALLER_SHARE: usize = 4;
/// Reservations grow by this number of bytes.
const RESERVATION_STEP: usize = 64 * 1024;

/// The identity that requests are counted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum CallerKey {
    Token(TokenId),
    Address(Option<IpAddr>),
}

/// What one caller uses.
struct CallerUsage {
    /// Requests in progress.
    requests: usize,
    /// Bytes reserved for their bodies.
    body_bytes: usize,
    /// When the window began, and the requests since.
    window: Instant,
    in_window: u32,
}

/// What all callers use.
#[derive(Default)]
struct Usage {
    callers: HashMap<CallerKey, CallerUsage>,
    body_bytes: usize,
}

/// Counts what callers use.
#[derive(Default)]
pub(crate) struct CallerLimits(Arc<Mutex<Usage>>);

/// One request in progress; ends when it is dropped.
pub(crate) struct CallerSlot {
    usage: Arc<Mutex<Usage>>,
    key: CallerKey,
    limits: ConnectionLimits,
    /// Bytes reserved for this request's body.
    reserved: Mutex<usize>,
}

impl AppState {
    /// Authenticates a request and admits it within its caller's limits.
    pub(crate) async fn admit(&self, head: &Parts) -> Result<(Caller, CallerSlot), Problem> {
        let caller = self.auth.authenticate(head, self.now()).await?;
        let from = head.extensions.get::<SocketAddr>().map(SocketAddr::ip);
        let key = caller.token.map_or(CallerKey::Address(from), CallerKey::Token);
        let slot = self.caller_limits.begin(key, self.limits)?;
        Ok((caller, slot))
    }
}

impl CallerLimits {
    fn begin(&self, key: CallerKey, limits: ConnectionLimits) -> Result<CallerSlot, Problem> {
        let mut usage = lock(&self.0);
        let now = Instant::now();
        if usage.callers.len() >= MAX_IDLE_CALLERS && !usage.callers.contains_key(&key) {
            usage.callers.retain(|_, caller| caller.requests > 0 || now - caller.window < WINDOW);
        }
        let caller = usage.callers.entry(key).or_insert(CallerUsage {
            requests: 0,
            body_bytes: 0,
            window: now,
            in_window: 0,
        });
        if now - caller.window >= WINDOW {
            (caller.window, caller.in_window) = (now, 0);
        }
        if limits.requests_per_second.is_some_and(|max| caller.in_window >= max) {
            let detail = "this token sends more requests per second than `[web] requests_per_second`";
            return Err(Problem::too_many(detail, WINDOW));
        }
        if caller.requests >= limits.requests_per_token {
            let detail = "this token has as many requests in progress as `[web] requests_per_token`";
            return Err(Problem::too_many(detail, WINDOW));
        }
        caller.in_window += 1;
        caller.requests += 1;
        Ok(CallerSlot { usage: Arc::clone(&self.0), key, limits, reserved: Mutex::new(0) })
    }
}

impl CallerSlot {
    /// Reserves memory for the body that a request announces, at most `max` bytes.
    pub(crate) fn reserve_announced(&self, head: &Parts, max: usize) -> Result<(), Problem> {
        let announced = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        self.reserve(announced.and_then(|length| length.parse().ok()).unwrap_or(max).min(max))
    }

    /// Makes sure that `bytes` are reserved for the body. They are released with the request.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), Problem> {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes <= *reserved {
            return Ok(());
        }
        let more = bytes.next_multiple_of(RESERVATION_STEP) - *reserved;
        let mut usage = lock(&self.usage);
        if usage.body_bytes + more > self.limits.body_memory {
            return Err(Problem::unavailable("the server's memory for request bodies is in use"));
        }
        let share = (self.limits.body_memory / CALLER_SHARE).max(self.limits.body + RESERVATION_STEP);
        if let Some(caller) = usage.callers.get_mut(&self.key) {
            if caller.body_bytes + more > share {
                let detail = "this token's requests use its share of the server's memory for bodies";
                return Err(Problem::too_many(detail, WINDOW));
            }
            caller.body_bytes += more;
        }
        usage.body_bytes += more;
        *reserved += more;
        Ok(())
    }
}

impl Drop for CallerSlot {
    fn drop(&mut self) {
        let reserved = *self.reserved.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut usage = lock(&self.usage);
        usage.body_bytes -= reserved;
        if let Some(caller) = usage.callers.get_mut(&self.key) {
            caller.requests -= 1;
            caller.body_bytes -= reserved;
        }
    }
}

fn lock(usage: &Mutex<Usage>) -> MutexGuard<'_, Usage> {
    usage.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(result: Result<impl Sized, Problem>) -> Option<u16> {
        result.err().map(|problem| problem.status().as_u16())
    }

    const MIB: usize = 1024 * 1024;

    #[tokio::test(start_paused = true)]
    async fn a_caller_at_its_limits_is_refused_and_others_are_not() {
        let limits = ConnectionLimits {
            requests_per_second: Some(3),
            requests_per_token: 2,
            body: MIB,
            body_memory: 8 * MIB,
            ..ConnectionLimits::default()
        };
        let (all, [one, other]) =
            (CallerLimits::default(), [TokenId::new(), TokenId::new()].map(CallerKey::Token));
        let held = [all.begin(one, limits).unwrap(), all.begin(one, limits).unwrap()];
        assert_eq!(status(all.begin(one, limits)), Some(429), "two at once");
        let neighbour = all.begin(other, limits).unwrap();
        drop(held);
        drop(all.begin(one, limits).unwrap());
        assert_eq!(status(all.begin(one, limits)), Some(429), "three in a second");
        tokio::time::advance(WINDOW).await;
        let slot = all.begin(one, limits).unwrap();
        slot.reserve(2 * MIB).unwrap();
        assert_eq!(status(slot.reserve(3 * MIB)), Some(429), "a quarter of the memory");
        neighbour.reserve(2 * MIB).unwrap();
        drop(slot);
        all.begin(one, limits).unwrap().reserve(2 * MIB).unwrap();
        drop(neighbour);
        assert_eq!(lock(&all.0).body_bytes, 0, "all is released");
    }

    #[tokio::test]
    async fn the_memory_for_all_bodies_is_bounded() {
        let limits = ConnectionLimits { body: MIB, body_memory: 4 * MIB, ..ConnectionLimits::default() };
        let all = CallerLimits::default();
        let slots: Vec<_> =
            (0..5).map(|_| all.begin(CallerKey::Token(TokenId::new()), limits).unwrap()).collect();
        let answers: Vec<_> = slots.iter().map(|slot| status(slot.reserve(MIB))).collect();
        assert_eq!(answers, [None, None, None, None, Some(503)]);
    }
}
