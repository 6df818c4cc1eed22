//! Implements the traits of [`longshore_accounts`] and [`ReplyQueues`].

use longshore_accounts::{
    AuditEntry, AuditLog, BucketRequest, Budget, BudgetState, Call, CallAdmission, CallRecord, Calls,
    CostCorrection, DrawResult, KeyChange, KeyRecord, Keys, Limits, NewAuditEntry, NewCall, PendingChange,
    PendingCounts, PendingFilter, PendingRequest, PendingRequests, ProfileChange, ProfileRecord, Profiles,
    ProviderBatch, ProviderBatchChange, TokenChange, TokenHash, TokenRecord, Tokens, Usage, UsageBy,
    UsageFilter,
};
use longshore_core::store::{OpenReplyQueue, Page, ReplyQueues, SendResult};
use longshore_core::{
    BatchId, KeyName, NewUnit, ProfileName, QueueName, Result, Scope, SessionId, TenantId, UnitId,
};

use super::operations;
use crate::ledger::{budgets, calls, keys, limits, profiles, provider_batches, reply_queues, tokens, usage};

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
    Relaxed admit_calls[](new: Vec<NewCall>) -> Vec<CallAdmission> = calls::admit(&new);
    Durable record_calls[](records: Vec<CallRecord>) -> () = calls::record(&records);
    Read calls[scope: Scope, filter: UsageFilter; after]() -> Page<Call> = usage::list();
    Read usage[scope: Scope, filter: UsageFilter](by: UsageBy) -> Vec<Usage> = usage::sums(by);
    Durable correct_costs[scope: Scope](recosts: Vec<CostCorrection>) -> () = calls::recost(&recosts);
}}

operations! { Limits {
    Relaxed draw[](draws: Vec<BucketRequest>) -> Vec<DrawResult> = limits::draw(&draws);
    Durable put_budget[scope: Scope, tenant: TenantId](budget: Option<Budget>) -> BudgetState
        = budgets::put(budget);
    {
        async fn budget(&self, scope: &Scope, tenant: &TenantId) -> Result<BudgetState> {
            let (now, scope, tenant) = (self.options.clock.now(), scope.clone(), tenant.clone());
            self.read(move |db| budgets::show(db, &scope, &tenant, now)).await
        }
    }
}}

operations! { ReplyQueues {
    Durable assign_reply_queue[scope: Scope, tenant: TenantId, queue: QueueName](
        session: Option<SessionId>
    ) -> () = reply_queues::assign(session);
    Read reply_queues[scope: Scope, tenant: TenantId](queue: Option<QueueName>) -> Vec<OpenReplyQueue>
        = reply_queues::list(queue.as_ref());
    Durable send_reply[scope: Scope](unit: NewUnit, reader: Option<SessionId>) -> Option<SendResult>
        = reply_queues::reply(&unit, reader);
}}

operations! { PendingRequests {
    Durable change_pending[batch: BatchId](change: PendingChange) -> Vec<UnitId>
        = provider_batches::change(&change);
    Read pending_requests[batch: BatchId, filter: PendingFilter](limit: u32) -> Vec<PendingRequest>
        = provider_batches::list(limit);
    Read provider_batches[batch: BatchId]() -> (Vec<ProviderBatch>, PendingCounts)
        = provider_batches::provider_batches();
    Durable change_provider_batch[batch: BatchId, mark: str](change: ProviderBatchChange) -> ()
        = provider_batches::change_provider_batch(&change);
}}

operations! { Tokens {
    Durable change_token[scope: Scope](change: TokenChange) -> TokenRecord
        = tokens::change(&change);
    Read tokens[scope: Scope](hash: Option<TokenHash>, limit: u32) -> Vec<TokenRecord>
        = tokens::list(hash, limit);
}}

operations! { AuditLog {
    Durable append[](entry: NewAuditEntry) -> () = tokens::append_audit_entry(&entry);
    Read audit_entries[scope: Scope; after]() -> Page<AuditEntry> = tokens::audit_entries();
}}
