//! The traits of [`longshore_accounts`] and [`ReplyQueues`] on PostgreSQL.

use std::sync::Arc;

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

use super::{operation, operation_without_timeout, operations};
use crate::ledger::{
    admission, budgets, calls, keys, limits, profiles, provider_batches, reply_queues, tokens, usage,
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
    Read calls[scope: Scope, filter: UsageFilter; after]() -> Page<Call> = usage::calls();
    Read usage[scope: Scope, filter: UsageFilter](by: UsageBy) -> Vec<Usage> = usage::usage(by);
    {
        async fn admit_calls(&self, calls: Vec<NewCall>) -> Result<Vec<CallAdmission>> {
            calls.iter().try_for_each(NewCall::check)?;
            let calls = Arc::new(calls);
            let run = async {
                if let Some(admissions) = admission::try_fast_path(&self.inner, &calls).await? {
                    return Ok(admissions);
                }
                let budgeted_tenants = &self.inner.budgeted_tenants;
                let weighed = operation_without_timeout!(self, Relaxed, tx =>
                    admission::admit(&mut tx, budgeted_tenants, &calls));
                weighed.await.inspect(|_| self.inner.count_spend())
            };
            self.inner.with_timeout(run).await
        }

        async fn record_calls(&self, records: Vec<CallRecord>) -> Result<()> {
            records.iter().try_for_each(CallRecord::check)?;
            self.inner.with_timeout(calls::record(&self.inner, records)).await
        }

        async fn correct_costs(&self, scope: &Scope, recosts: Vec<CostCorrection>) -> Result<()> {
            recosts.iter().try_for_each(CostCorrection::check)?;
            operation!(self, Durable, tx => calls::recost(&mut tx, scope, &recosts))
        }
    }
}}

operations! { Limits {
    Durable put_budget[scope: Scope, tenant: TenantId](budget: Option<Budget>) -> BudgetState
        = budgets::put(budget);
    Read budget[scope: Scope, tenant: TenantId]() -> BudgetState = budgets::show();
    {
        async fn draw(&self, draws: Vec<BucketRequest>) -> Result<Vec<DrawResult>> {
            operation!(self, Relaxed, tx => limits::draw(&mut tx, &draws))
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
    Durable append[](entry: NewAuditEntry) -> () = tokens::append_audit(&entry);
    Read audit_entries[scope: Scope; after]() -> Page<AuditEntry> = tokens::list_audit();
}}
