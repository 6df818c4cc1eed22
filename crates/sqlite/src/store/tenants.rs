//! Implements [`Tenants`].

use async_trait::async_trait;
use longshore_core::store::{Tenant, TenantChange};
use longshore_core::{Result, Scope, TenantId, Tenants};

use super::SqliteStore;
use crate::tenants;
use crate::writer::Durability::Durable;

#[async_trait]
impl Tenants for SqliteStore {
    async fn put_tenant(
        &self,
        scope: &Scope,
        id: &TenantId,
        change: TenantChange,
    ) -> Result<Tenant> {
        let (scope, id) = (scope.clone(), id.clone());
        self.writer.call(Durable, move |tx| tenants::put(tx, &scope, &id, change)).await
    }

    async fn remove_tenant(&self, scope: &Scope, id: &TenantId) -> Result<()> {
        let (scope, id) = (scope.clone(), id.clone());
        self.writer.call(Durable, move |tx| tenants::remove(tx, &scope, &id)).await
    }

    async fn tenants(&self, scope: &Scope) -> Result<Vec<Tenant>> {
        let scope = scope.clone();
        self.read(move |db| tenants::list(db, &scope)).await
    }
}
