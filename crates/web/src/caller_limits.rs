//! Limits per caller, so that one token or tenant cannot take what the server has for all: requests per
//! second, concurrent requests and audited actions per token; memory for bodies and concurrent reads per
//! tenant.
//!
//! A request without a token counts for its client's address.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use axum::response::Response;
use futures_util::StreamExt;
use hyper::body::Body as _;
use longshore::{TenantId, TokenId};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::app_state::{AppState, ConnectionLimits};
use crate::auth::Caller;
use crate::endpoints::ApiResult;
use crate::guarded_body::GuardedBody;
use crate::problem::Problem;

/// The window in which requests are counted.
const WINDOW: Duration = Duration::from_secs(1);
/// Callers without a request are forgotten when more than this number are known.
const MAX_IDLE_CALLERS: usize = 1_000;
/// The part of the memory for bodies that one tenant may use.
const TENANT_SHARE: usize = 4;
/// Reservations grow by this number of bytes. Smaller responses are never refused.
const RESERVATION_STEP: usize = 64 * 1024;
/// Reads of the store that one tenant may have in progress; further ones wait.
const READS_PER_TENANT: usize = 8;
/// A token may use the audited actions of this time at once.
const AUDIT_BURST: Duration = Duration::from_secs(600);

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
    /// When the window began, and the requests since.
    window: Instant,
    in_window: u32,
    /// When its audited actions would have ended at the permitted rate.
    audited_until: Instant,
}

/// What one tenant uses. It exists while the tenant has requests in progress.
struct TenantUsage {
    requests: usize,
    /// Bytes reserved for bodies.
    body_bytes: usize,
    reads: Arc<Semaphore>,
}

/// What all callers use.
#[derive(Default)]
struct Usage {
    callers: HashMap<CallerKey, CallerUsage>,
    tenants: HashMap<Option<TenantId>, TenantUsage>,
    body_bytes: usize,
}

/// Counts what callers use.
#[derive(Default)]
pub(crate) struct CallerLimits {
    usage: Arc<Mutex<Usage>>,
    /// Reads in progress, with or without their clients.
    pub(crate) read_tasks: TaskTracker,
}

/// One request in progress; ends when it is dropped.
pub(crate) struct CallerSlot {
    usage: Arc<Mutex<Usage>>,
    key: CallerKey,
    tenant: Option<TenantId>,
    limits: ConnectionLimits,
    reads: Arc<Semaphore>,
    read_tasks: TaskTracker,
    /// Bytes reserved for this request's body or response, and why more were refused.
    reservation: Mutex<(usize, Option<Problem>)>,
}

impl AppState {
    /// Authenticates a request and admits it within its caller's limits.
    pub(crate) async fn admit(&self, head: &Parts) -> Result<(Caller, Arc<CallerSlot>), Problem> {
        let caller = self.auth.authenticate(head, self.now()).await?;
        let slot = self.begin_request(&caller, head)?;
        Ok((caller, slot))
    }

    /// Admits a request of an authenticated caller within its limits.
    pub(crate) fn begin_request(&self, caller: &Caller, head: &Parts) -> Result<Arc<CallerSlot>, Problem> {
        let from = head.extensions.get::<SocketAddr>().map(SocketAddr::ip);
        let key = caller.token.map_or(CallerKey::Address(from), CallerKey::Token);
        self.caller_limits.begin(key, caller.tenant.clone(), self.limits).map(Arc::new)
    }
}

impl CallerLimits {
    fn begin(
        &self,
        key: CallerKey,
        tenant: Option<TenantId>,
        limits: ConnectionLimits,
    ) -> Result<CallerSlot, Problem> {
        let mut usage = lock(&self.usage);
        let now = Instant::now();
        if usage.callers.len() >= MAX_IDLE_CALLERS && !usage.callers.contains_key(&key) {
            usage.callers.retain(|_, caller| {
                caller.requests > 0 || now - caller.window < WINDOW || caller.audited_until > now
            });
        }
        let caller = usage.callers.entry(key).or_insert(CallerUsage {
            requests: 0,
            window: now,
            in_window: 0,
            audited_until: now,
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
        let of_tenant = usage.tenants.entry(tenant.clone()).or_insert_with(|| TenantUsage {
            requests: 0,
            body_bytes: 0,
            reads: Arc::new(Semaphore::new(READS_PER_TENANT)),
        });
        of_tenant.requests += 1;
        let (usage, reads) = (Arc::clone(&self.usage), Arc::clone(&of_tenant.reads));
        let (read_tasks, reservation) = (self.read_tasks.clone(), Mutex::default());
        Ok(CallerSlot { usage, key, tenant, limits, reads, read_tasks, reservation })
    }
}

impl CallerSlot {
    /// The tenant's permits for reads of the store.
    pub(crate) fn reads(&self) -> &Arc<Semaphore> {
        &self.reads
    }

    /// Runs a read of the store with one of its tenant's permits, and reserves memory for the response. The
    /// read runs to its end, or to the time limit, even if the client leaves: the store works for this tenant
    /// until then.
    pub(crate) async fn read(
        self: &Arc<Self>,
        reading: impl Future<Output = ApiResult> + Send + 'static,
    ) -> ApiResult {
        let too_long = || Problem::timeout("the request took too long");
        let (slot, deadline) = (Arc::clone(self), Instant::now() + self.limits.time);
        let permit = timeout_at(deadline, Arc::clone(&self.reads).acquire_owned());
        let permit = permit.await.map_err(|_| too_long())?;
        let task = async move {
            let response = timeout_at(deadline, reading).await.unwrap_or_else(|_| Err(too_long()))?;
            slot.charge(&response)?;
            drop(permit);
            Ok(response)
        };
        match self.read_tasks.spawn(task.in_current_span()).await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Problem::unavailable("the server is shutting down")),
            },
        }
    }

    /// Counts an audited action of this token.
    pub(crate) fn count_audited(&self) -> Result<(), Problem> {
        let Some(per_minute) = self.limits.audited_per_minute else { return Ok(()) };
        let (mut usage, now) = (lock(&self.usage), Instant::now());
        let Some(caller) = usage.callers.get_mut(&self.key) else { return Ok(()) };
        let interval = Duration::from_secs(60) / per_minute;
        let until = caller.audited_until.max(now) + interval;
        if until > now + AUDIT_BURST {
            let detail = "this token changes more per minute than `[web] audited_per_minute`";
            return Err(Problem::too_many(detail, until - now - AUDIT_BURST));
        }
        caller.audited_until = until;
        Ok(())
    }

    /// The request's body, with memory reserved for its bytes as they arrive. If that is refused the body ends
    /// with an error; [`Self::refusal`] has the reason.
    pub(crate) fn reserving(self: &Arc<Self>, body: Body) -> Body {
        let (slot, mut bytes) = (Arc::clone(self), 0);
        Body::from_stream(body.into_data_stream().map(move |data| {
            let data = data.map_err(std::io::Error::other)?;
            bytes += data.len();
            slot.reserve(bytes).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
            Ok::<_, std::io::Error>(data)
        }))
    }

    /// Why memory for this request was refused.
    pub(crate) fn refusal(&self) -> Option<Problem> {
        self.reservation.lock().unwrap_or_else(PoisonError::into_inner).1.take()
    }

    /// Makes sure that `bytes` are reserved for the body.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), Problem> {
        let mut reservation = self.reservation.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes <= reservation.0 {
            return Ok(());
        }
        let set = self.set_reserved(&mut reservation.0, bytes.next_multiple_of(RESERVATION_STEP), true);
        reservation.1 = set.clone().err();
        set
    }

    /// Reserves memory for a response instead of the request's body, which is not needed any more. A response
    /// of unknown length changes nothing.
    pub(crate) fn charge(&self, response: &Response) -> Result<(), Problem> {
        let Some(bytes) = response.body().size_hint().exact() else { return Ok(()) };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut reservation = self.reservation.lock().unwrap_or_else(PoisonError::into_inner);
        self.set_reserved(&mut reservation.0, bytes, bytes > RESERVATION_STEP)
    }

    /// The response, which counts as a request in progress until its last byte is sent.
    pub(crate) fn hold(self: Arc<Self>, response: Response) -> Response {
        response.map(|body| Body::new(GuardedBody::new(body, self)))
    }

    /// Sets what is reserved. A tenant's only body, and the server's only body, always fit.
    fn set_reserved(&self, reserved: &mut usize, bytes: usize, is_refusable: bool) -> Result<(), Problem> {
        let mut usage = lock(&self.usage);
        let Usage { tenants, body_bytes: all, .. } = &mut *usage;
        let Some(TenantUsage { body_bytes: own, .. }) = tenants.get_mut(&self.tenant) else { return Ok(()) };
        let (other_own, other_all) = (*own - *reserved, *all - *reserved);
        if is_refusable && bytes > *reserved {
            let does_not_fit = |others: usize, max: usize| others > 0 && others.saturating_add(bytes) > max;
            if does_not_fit(other_own, self.limits.body_memory / TENANT_SHARE) {
                let detail = "this tenant's requests use its share of the server's memory for bodies";
                return Err(Problem::too_many(detail, WINDOW));
            }
            if does_not_fit(other_all, self.limits.body_memory) {
                return Err(Problem::unavailable("the server's memory for bodies is in use"));
            }
        }
        (*own, *all, *reserved) = (other_own + bytes, other_all + bytes, bytes);
        Ok(())
    }
}

impl Drop for CallerSlot {
    fn drop(&mut self) {
        let (reserved, _) = self.reservation.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut usage = lock(&self.usage);
        usage.body_bytes -= *reserved;
        if let Some(caller) = usage.callers.get_mut(&self.key) {
            caller.requests -= 1;
        }
        if let Some(tenant) = usage.tenants.get_mut(&self.tenant) {
            tenant.requests -= 1;
            tenant.body_bytes -= *reserved;
            if tenant.requests == 0 {
                usage.tenants.remove(&self.tenant);
            }
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

    /// Begins a request of a new token of this tenant.
    fn begin(all: &CallerLimits, tenant: &str, limits: ConnectionLimits) -> Arc<CallerSlot> {
        let tenant = Some(TenantId::new(tenant).unwrap());
        Arc::new(all.begin(CallerKey::Token(TokenId::new()), tenant, limits).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_at_its_limits_is_refused_and_others_are_not() {
        let limits = ConnectionLimits {
            requests_per_second: Some(3),
            requests_per_token: 2,
            ..ConnectionLimits::default()
        };
        let (all, [one, other]) =
            (CallerLimits::default(), [TokenId::new(), TokenId::new()].map(CallerKey::Token));
        let held = [all.begin(one, None, limits).unwrap(), all.begin(one, None, limits).unwrap()];
        assert_eq!(status(all.begin(one, None, limits)), Some(429), "two at once");
        let neighbour = all.begin(other, None, limits).unwrap();
        drop(held);
        drop(all.begin(one, None, limits).unwrap());
        assert_eq!(status(all.begin(one, None, limits)), Some(429), "three in a second");
        tokio::time::advance(WINDOW).await;
        let slot = all.begin(one, None, limits).unwrap();
        drop((slot, neighbour));
        assert!(lock(&all.usage).tenants.is_empty(), "all is released");
    }

    #[tokio::test]
    async fn a_tenants_bodies_and_responses_use_a_share_of_the_memory() {
        let limits = ConnectionLimits { body_memory: 8 * MIB, ..ConnectionLimits::default() };
        let all = CallerLimits::default();
        let (one, same, other) =
            (begin(&all, "one", limits), begin(&all, "one", limits), begin(&all, "two", limits));
        one.reserve(MIB).unwrap();
        assert_eq!(status(same.reserve(2 * MIB)), Some(429), "a quarter, over all its tokens");
        assert_eq!(same.refusal().map(|problem| problem.status().as_u16()), Some(429));
        other.reserve(2 * MIB).unwrap();
        let response = |bytes: usize| Response::new(Body::from(vec![0; bytes]));
        one.charge(&response(1)).unwrap();
        same.reserve(2 * MIB - 1).unwrap_err();
        same.reserve(MIB).unwrap();
        assert_eq!(status(one.charge(&response(2 * MIB))), Some(429));
        one.charge(&response(RESERVATION_STEP)).unwrap();
        drop(same);
        one.charge(&response(3 * MIB)).unwrap();
        let held = one.hold(response(3 * MIB));
        assert_eq!(lock(&all.usage).body_bytes, 5 * MIB);
        drop((held, other));
        assert_eq!(lock(&all.usage).body_bytes, 0, "all is released");
    }

    #[tokio::test]
    async fn the_memory_for_all_bodies_is_bounded() {
        let limits = ConnectionLimits { body_memory: 4 * MIB, ..ConnectionLimits::default() };
        let all = CallerLimits::default();
        let slots: Vec<_> = (0..5).map(|at| begin(&all, &format!("t{at}"), limits)).collect();
        let answers: Vec<_> = slots.iter().map(|slot| status(slot.reserve(MIB))).collect();
        assert_eq!(answers, [None, None, None, None, Some(503)]);
    }

    #[tokio::test]
    async fn a_body_reserves_what_has_arrived() {
        let all = CallerLimits::default();
        let slot = begin(&all, "one", ConnectionLimits::default());
        let mut body = slot.reserving(Body::from(vec![0; 100])).into_data_stream();
        assert_eq!(lock(&all.usage).body_bytes, 0);
        assert_eq!(body.next().await.unwrap().unwrap().len(), 100);
        assert_eq!(lock(&all.usage).body_bytes, RESERVATION_STEP);
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_has_few_reads_at_a_time_even_if_its_clients_leave() {
        let all = CallerLimits::default();
        let slot = begin(&all, "one", ConnectionLimits::default());
        let started = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let read = |slot: &Arc<CallerSlot>| {
            let (slot, started) = (Arc::clone(slot), Arc::clone(&started));
            async move {
                let reading = async move {
                    started.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    std::future::pending::<ApiResult>().await
                };
                slot.read(reading).await
            }
        };
        let count = || started.load(std::sync::atomic::Ordering::Relaxed);
        for _ in 0..2 * READS_PER_TENANT {
            let client = tokio::time::timeout(Duration::from_millis(1), read(&slot));
            assert!(client.await.is_err(), "it leaves");
        }
        assert_eq!(count(), READS_PER_TENANT);
        let other = begin(&all, "two", ConnectionLimits::default());
        assert_eq!(status(read(&other).await), Some(408), "it has its own");
        assert_eq!(count(), READS_PER_TENANT + 1);
        assert_eq!(status(read(&slot).await), Some(408), "their time is over");
        assert_eq!(count(), READS_PER_TENANT + 2);
    }

    #[tokio::test(start_paused = true)]
    async fn audited_actions_are_limited_after_a_burst() {
        let limits = ConnectionLimits { audited_per_minute: Some(6), ..ConnectionLimits::default() };
        let all = CallerLimits::default();
        let slot = begin(&all, "one", limits);
        let burst = (0..).take_while(|_| slot.count_audited().is_ok()).count();
        assert_eq!(burst, 60, "of ten minutes");
        tokio::time::advance(Duration::from_secs(60)).await;
        let later = (0..).take_while(|_| slot.count_audited().is_ok()).count();
        assert_eq!(later, 6);
        begin(&all, "one", limits).count_audited().unwrap();
    }
}
