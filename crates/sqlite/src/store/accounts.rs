//! Implements the traits of [`longshore_accounts`] and [`Replies`].

use longshore_accounts::{
    Admission, Audit, Budget, BudgetState, Call, CallRecord, Calls, Deed, Draw, Drawn, KeyChange,
    KeyRecord, Keys, Limits, NewCall, NewDeed, Parked, ParkedCounts, Parking, PendingChange,
    PendingFilter, ProfileChange, ProfileRecord, Profiles, ProviderBatchChange, Recost, Shipment,
    TokenChange, TokenHash, TokenRecord, Tokens, Usage, UsageBy, UsageFilter,
};
use longshore_core::store::{Page, Replies, Sent};
use longshore_core::{
    BatchId, KeyName, NewUnit, ProfileName, QueueName, Result, Scope, SessionId, TenantId, UnitId,
};

use super::operations;
use crate::ledger::{
    budgets, calls, keys, limits, profiles, provider_batches, reply_queues, tokens, usage,
};

operations! { Profiles {
    Durable change_profile[scope: Scope](change: ProfileChange) -> ProfileRecord
        = profiles::change(&change);
    Read profiles[scope: Scope; after](name: Option<ProfileName>) -> Page<ProfileRecord>
        = profiles::list(name.as_ref());
}}

operations! { Keys {
    Durable change_key[scope: Scope](change: KeyChange) -> bool = keys::change(&change);
    Read keys[scope: Scope; after](name: Option<KeyName>) -> Page<KeyRecord>
        = keys::list(name.as_ref());
}}

operations! { Calls {
    Relaxed admit_calls[](new: Vec<NewCall>) -> Vec<Admission> = calls::admit(&new);
    Durable record_calls[](records: Vec<CallRecord>) -> () = calls::record(&records);
    Read calls[scope: Scope, filter: UsageFilter; after]() -> Page<Call> = usage::list();
    Read usage[scope: Scope, filter: UsageFilter](by: UsageBy) -> Vec<Usage> = usage::sums(by);
    Durable recost[scope: Scope](recosts: Vec<Recost>) -> () = calls::recost(&recosts);
}}

operations! { Limits {
    Relaxed draw[](draws: Vec<Draw>) -> Vec<Drawn> = limits::draw(&draws);
    Durable put_budget[scope: Scope, tenant: TenantId](budget: Option<Budget>) -> BudgetState
        = budgets::put(budget);
    {
        async fn budget(&self, scope: &Scope, tenant: &TenantId) -> Result<BudgetState> {
            let (now, scope, tenant) = (self.options.clock.now(), scope.clone(), tenant.clone());
            self.read(move |db| budgets::show(db, &scope, &tenant, now)).await
        }
    }
}}

operations! { Replies {
    Durable assign_reply_queue[scope: Scope, tenant: TenantId, queue: QueueName](
        session: Option<SessionId>
    ) -> () = reply_queues::assign(session);
    Durable reply[scope: Scope](unit: NewUnit) -> Option<Sent> = reply_queues::reply(&unit);
}}

operations! { Parking {
    Durable change_pending[batch: BatchId](change: PendingChange) -> Vec<UnitId>
        = provider_batches::change(&change);
    Read pending_requests[batch: BatchId, filter: PendingFilter](limit: u32) -> Vec<Parked>
        = provider_batches::list(limit);
    Read provider_batches[batch: BatchId]() -> (Vec<Shipment>, ParkedCounts)
        = provider_batches::shipments();
    Durable change_provider_batch[batch: BatchId, mark: str](change: ProviderBatchChange) -> ()
        = provider_batches::change_provider_batch(&change);
}}

operations! { Tokens {
    Durable change_token[scope: Scope](change: TokenChange) -> TokenRecord
        = tokens::change(&change);
    Read tokens[scope: Scope](hash: Option<TokenHash>, limit: u32) -> Vec<TokenRecord>
        = tokens::list(hash, limit);
}}

operations! { Audit {
    Durable note[](deed: NewDeed) -> () = tokens::append_audit_entry(&deed);
    Read deeds[scope: Scope; after]() -> Page<Deed> = tokens::audit_entries();
}}
