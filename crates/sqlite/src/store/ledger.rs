//! Implements the traits of [`longshore_core::ledger`], except parked requests, tokens and the
//! audit log.

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

use super::SqliteStore;
use crate::ledger::{budgets, calls, keys, limits, profiles, reply_queues, usage};
use crate::tx::Tx;
use crate::writer::Durability::{Durable, Relaxed};

#[async_trait]
impl Profiles for SqliteStore {
    async fn put_profile(&self, scope: &Scope, put: PutProfile) -> Result<ProfileRecord> {
        let scope = scope.clone();
        self.writer.call(Durable, move |tx| profiles::put(tx, &scope, &put)).await
    }

    async fn remove_profile(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ProfileName,
    ) -> Result<()> {
        let (scope, tenant, name) = (scope.clone(), tenant.clone(), name.clone());
        self.writer.call(Durable, move |tx| profiles::remove(tx, &scope, &tenant, &name)).await
    }

    async fn profile(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ProfileName,
    ) -> Result<ProfileRecord> {
        let (scope, tenant, name) = (scope.clone(), tenant.clone(), name.clone());
        self.read(move |db| profiles::show(db, &scope, &tenant, &name)).await
    }

    async fn profiles(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<ProfileRecord>> {
        let (scope, after) = (scope.clone(), after.map(str::to_owned));
        self.read(move |db| profiles::list(db, &scope, after.as_deref(), limit)).await
    }

    async fn is_suspended(&self, scope: &Scope, tenant: &TenantId) -> Result<bool> {
        let (scope, tenant) = (scope.clone(), tenant.clone());
        self.read(move |db| profiles::is_suspended(db, &scope, &tenant)).await
    }
}

#[async_trait]
impl Keys for SqliteStore {
    async fn add_key(
        &self,
        scope: &Scope,
        key: NewKey,
        retires_at: Option<Timestamp>,
    ) -> Result<()> {
        let scope = scope.clone();
        self.writer.call(Durable, move |tx| keys::add(tx, &scope, &key, retires_at)).await
    }

    async fn revoke_key(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &KeyName,
        version: Option<u32>,
    ) -> Result<()> {
        let (scope, tenant, name) = (scope.clone(), tenant.clone(), name.clone());
        let op = move |tx: &mut Tx<'_>| keys::revoke(tx, &scope, &tenant, &name, version);
        self.writer.call(Durable, op).await
    }

    async fn key(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &KeyName,
    ) -> Result<Vec<KeyRecord>> {
        let (scope, tenant, name) = (scope.clone(), tenant.clone(), name.clone());
        self.read(move |db| keys::versions(db, &scope, &tenant, &name)).await
    }

    async fn keys(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<KeyRecord>> {
        let (scope, after) = (scope.clone(), after.map(str::to_owned));
        self.read(move |db| keys::list(db, &scope, after.as_deref(), limit)).await
    }

    async fn rewrap_key(&self, scope: &Scope, from: &str, key: NewKey) -> Result<bool> {
        let (scope, from) = (scope.clone(), from.to_owned());
        self.writer.call(Durable, move |tx| keys::rewrap(tx, &scope, &from, &key)).await
    }
}

#[async_trait]
impl Calls for SqliteStore {
    async fn admit_calls(&self, new: Vec<NewCall>) -> Result<Vec<Admission>> {
        self.writer.call(Relaxed, move |tx| calls::admit(tx, &new)).await
    }

    async fn record_calls(&self, records: Vec<CallRecord>) -> Result<()> {
        self.writer.call(Durable, move |tx| calls::record(tx, &records)).await
    }

    async fn calls(
        &self,
        scope: &Scope,
        filter: &UsageFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Call>> {
        let (scope, filter, after) = (scope.clone(), filter.clone(), after.map(str::to_owned));
        self.read(move |db| usage::list(db, &scope, &filter, after.as_deref(), limit)).await
    }

    async fn usage(&self, scope: &Scope, filter: &UsageFilter, by: UsageBy) -> Result<Vec<Usage>> {
        let (scope, filter) = (scope.clone(), filter.clone());
        self.read(move |db| usage::sums(db, &scope, &filter, by)).await
    }

    async fn recost(&self, scope: &Scope, recosts: Vec<Recost>) -> Result<()> {
        let scope = scope.clone();
        self.writer.call(Durable, move |tx| calls::recost(tx, &scope, &recosts)).await
    }
}

#[async_trait]
impl Limits for SqliteStore {
    async fn draw(&self, draws: Vec<Draw>) -> Result<Vec<Drawn>> {
        self.writer.call(Relaxed, move |tx| limits::draw(tx, &draws)).await
    }

    async fn put_budget(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        budget: Option<Budget>,
    ) -> Result<BudgetState> {
        let (scope, tenant) = (scope.clone(), tenant.clone());
        self.writer.call(Durable, move |tx| budgets::put(tx, &scope, &tenant, budget)).await
    }

    async fn budget(&self, scope: &Scope, tenant: &TenantId) -> Result<BudgetState> {
        let (now, scope, tenant) = (self.options.clock.now(), scope.clone(), tenant.clone());
        self.read(move |db| budgets::show(db, &scope, &tenant, now)).await
    }
}

#[async_trait]
impl Replies for SqliteStore {
    async fn open_replies(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        queue: &QueueName,
        session: SessionId,
    ) -> Result<()> {
        let (scope, tenant, queue) = (scope.clone(), tenant.clone(), queue.clone());
        let op = move |tx: &mut Tx<'_>| reply_queues::open(tx, &scope, &tenant, &queue, session);
        self.writer.call(Relaxed, op).await
    }

    async fn close_replies(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        queue: &QueueName,
    ) -> Result<()> {
        let (scope, tenant, queue) = (scope.clone(), tenant.clone(), queue.clone());
        self.writer.call(Durable, move |tx| reply_queues::close(tx, &scope, &tenant, &queue)).await
    }

    async fn reply(&self, scope: &Scope, unit: NewUnit) -> Result<Option<Sent>> {
        let scope = scope.clone();
        self.writer.call(Durable, move |tx| reply_queues::reply(tx, &scope, &unit)).await
    }

    async fn replies_open(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        queue: &QueueName,
    ) -> Result<bool> {
        let (scope, tenant, queue) = (scope.clone(), tenant.clone(), queue.clone());
        self.read(move |db| reply_queues::is_open(db, &scope, &tenant, &queue)).await
    }
}
