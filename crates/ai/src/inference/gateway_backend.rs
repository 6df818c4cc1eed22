//! Inference as the gateway's backend.

use async_trait::async_trait;
use longshore::accounts::{CallRecord, ProfileRecord};
use longshore::{ProfileName, Scope, TenantId};
use tokio::sync::mpsc;

use super::profile_cache::ledger_error;
use super::profile_document::Sheet;
use super::{Desk, Errand, Settled, TENANT_SHEET};
use crate::chat::Piece;
use crate::gateway::{Counter, ProfileSettings};
use crate::model_api::AskError;

/// Profiles read per page.
const PAGE: u32 = 500;

#[async_trait]
impl Counter for Desk {
    async fn profile_settings(
        &self,
        tenant: &TenantId,
        profile: &ProfileName,
    ) -> Result<ProfileSettings, AskError> {
        let entry = self.inner.profile_cache.find(tenant, Some(profile)).await?;
        let profile = &entry.profile;
        Ok(ProfileSettings {
            provider: Some(profile.provider),
            model: profile.model.clone(),
            max_tokens: profile.max_tokens,
            temperature: profile.temperature,
        })
    }

    async fn ask(&self, request: &Errand, pieces: Option<&mpsc::Sender<Piece>>) -> Settled {
        self.inner.journal.capacity().await;
        Desk::ask(self, request, pieces).await
    }

    fn record(&self, records: Vec<CallRecord>) {
        records.into_iter().for_each(|record| self.inner.journal.append(record));
    }

    async fn profiles(&self, tenant: &TenantId) -> Result<Vec<ProfileName>, AskError> {
        self.inner.profile_cache.require_active(tenant).await?;
        let scope = Scope::Tenant(tenant.clone());
        let (mut names, mut after) = (Vec::new(), None::<String>);
        loop {
            let page = self.inner.ledger.profiles(&scope, None, after.as_deref(), PAGE).await;
            let page = page.map_err(|error| ledger_error(&error))?;
            let is_one =
                |record: &ProfileRecord| !record.suspended && !Sheet::is_template(&record.body);
            let usable = page.items.into_iter().filter(is_one);
            names.extend(
                usable.map(|record| record.name).filter(|name| name.as_str() != TENANT_SHEET),
            );
            after = page.next;
            if after.is_none() {
                return Ok(names);
            }
        }
    }
}
