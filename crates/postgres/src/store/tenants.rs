//! [`Tenants`] on PostgreSQL.

use async_trait::async_trait;
use longshore_core::store::{Tenant, TenantChange, Tenants};
use longshore_core::{Result, Scope, TenantId};

use super::{PostgresStore, operation};
use crate::tenants;

#[async_trait]
impl Tenants for PostgresStore {
    async fn put_tenant(
        &self,
        scope: &Scope,
        id: &TenantId,
        change: TenantChange,
    ) -> Result<Tenant> {
        operation!(self, Durable, tx => tenants::put(&mut tx, scope, id, change))
    }

    async fn remove_tenant(&self, scope: &Scope, id: &TenantId) -> Result<()> {
        operation!(self, Durable, tx => tenants::remove(&mut tx, scope, id))
    }

    async fn tenants(&self, scope: &Scope) -> Result<Vec<Tenant>> {
        operation!(self, Read, tx => tenants::list(&mut tx, scope))
    }
}
