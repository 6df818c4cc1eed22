//! Whether and when a request is sent: limits, quotas, circuit breakers, retries.

mod adaptive_concurrency;
mod breaker;
mod limiter;
mod provider_quota;
mod retry_policy;
mod tenant_turns;
mod token_lease;

pub use adaptive_concurrency::{AdaptiveConcurrency, Gauge, GaugeGuard};
pub(crate) use breaker::{Breaker, BreakerWait, CreditBreaker, CreditPass, PROBE_INTERVAL, Pass};
pub use limiter::{LimitError, Limiter, TokenReservation};
pub(crate) use provider_quota::{Allow, ProviderQuota};
pub use retry_policy::{CallRetryPolicy, RetryDecision};
pub use tenant_turns::WaitingTenant;
pub(crate) use tenant_turns::{TenantPasses, TenantTurns, Turn};
pub use token_lease::{BucketCharge, Measure};
pub(crate) use token_lease::{LeasePart, TokenLease};
