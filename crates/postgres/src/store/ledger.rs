//! [`Profiles`], [`Keys`], [`Calls`], [`Limits`] and [`Replies`] on PostgreSQL.

use std::sync::Arc;

use async_trait::async_trait;
use longshore_core::ledger::{
    Admission, Budget, BudgetState, Call, CallRecord, Calls, Draw, Drawn, KeyRecord, Keys, Limits,
    NewCall, NewKey, ProfileRecord, Profiles, PutProfile, Recost, Replies, Usage, UsageBy,
    UsageFilter,
};
use longshore_core::store::{Page, Sent};
use longshore_core::{
    KeyName, NewUnit, ProfileName, QueueName, Result, Scope, SessionId, TenantId, Timestamp,
};

use super::{PostgresStore, operation, operation_without_timeout};
use crate::ledger::{admission, budgets, calls, keys, limits, profiles, reply_queues, usage};

#[async_trait]
impl Profiles for PostgresStore {
    async fn put_profile(&self, scope: &Scope, put: PutProfile) -> Result<ProfileRecord> {
        operation!(self, Durable, tx => profiles::put(&mut tx, scope, put.clone()))
    }

    async fn remove_profile(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ProfileName,
    ) -> Result<()> {
        operation!(self, Durable, tx => profiles::remove(&mut tx, scope, tenant, name))
    }

    async fn profile(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ProfileName,
    ) -> Result<ProfileRecord> {
        operation!(self, Read, tx => profiles::one(&mut tx, scope, tenant, name))
    }

    async fn profiles(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<ProfileRecord>> {
        operation!(self, Read, tx => profiles::list(&mut tx, scope, after, limit))
    }

    async fn is_suspended(&self, scope: &Scope, tenant: &TenantId) -> Result<bool> {
        operation!(self, Read, tx => profiles::is_suspended(&mut tx, scope, tenant))
    }
}

#[async_trait]
impl Keys for PostgresStore {
    async fn add_key(
        &self,
        scope: &Scope,
        key: NewKey,
        retires_at: Option<Timestamp>,
    ) -> Result<()> {
        operation!(self, Durable, tx => keys::add(&mut tx, scope, &key, retires_at))
    }

    async fn revoke_key(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &KeyName,
        version: Option<u32>,
    ) -> Result<()> {
        operation!(self, Durable, tx => keys::revoke(&mut tx, scope, tenant, name, version))
    }

    async fn key(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &KeyName,
    ) -> Result<Vec<KeyRecord>> {
        operation!(self, Read, tx => keys::one(&mut tx, scope, tenant, name))
    }

    async fn keys(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<KeyRecord>> {
        operation!(self, Read, tx => keys::list(&mut tx, scope, after, limit))
    }

    async fn rewrap_key(&self, scope: &Scope, from: &str, key: NewKey) -> Result<bool> {
        operation!(self, Durable, tx => keys::rewrap(&mut tx, scope, from, &key))
    }
}

#[async_trait]
impl Calls for PostgresStore {
    async fn admit_calls(&self, calls: Vec<NewCall>) -> Result<Vec<Admission>> {
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

    async fn calls(
        &self,
        scope: &Scope,
        filter: &UsageFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Call>> {
        operation!(self, Read, tx => usage::calls(&mut tx, scope, filter, after, limit))
    }

    async fn usage(&self, scope: &Scope, filter: &UsageFilter, by: UsageBy) -> Result<Vec<Usage>> {
        operation!(self, Read, tx => usage::usage(&mut tx, scope, filter, by))
    }

    async fn recost(&self, scope: &Scope, recosts: Vec<Recost>) -> Result<()> {
        recosts.iter().try_for_each(Recost::check)?;
        operation!(self, Durable, tx => calls::recost(&mut tx, scope, &recosts))
    }
}

#[async_trait]
impl Limits for PostgresStore {
    async fn draw(&self, draws: Vec<Draw>) -> Result<Vec<Drawn>> {
        let clock_source = self.inner.options.clock_source;
        operation!(self, Relaxed, tx => limits::draw(&mut tx, &draws, clock_source))
    }

    async fn put_budget(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        budget: Option<Budget>,
    ) -> Result<BudgetState> {
        operation!(self, Durable, tx => budgets::put(&mut tx, scope, tenant, budget))
    }

    async fn budget(&self, scope: &Scope, tenant: &TenantId) -> Result<BudgetState> {
        operation!(self, Read, tx => budgets::show(&mut tx, scope, tenant))
    }
}

#[async_trait]
impl Replies for PostgresStore {
    async fn open_replies(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        queue: &QueueName,
        session: SessionId,
    ) -> Result<()> {
        operation!(self, Durable, tx => reply_queues::open(&mut tx, scope, tenant, queue, session))
    }

    async fn close_replies(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        queue: &QueueName,
    ) -> Result<()> {
        operation!(self, Durable, tx => reply_queues::close(&mut tx, scope, tenant, queue))
    }

    async fn reply(&self, scope: &Scope, unit: NewUnit) -> Result<Option<Sent>> {
        operation!(self, Durable, tx => reply_queues::reply(&mut tx, scope, &unit))
    }

    async fn replies_open(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        queue: &QueueName,
    ) -> Result<bool> {
        operation!(self, Read, tx => reply_queues::are_open(&mut tx, scope, tenant, queue))
    }
}
