//! The desk as the gateway's counter.

use async_trait::async_trait;
use longshore::ledger::{CallRecord, ProfileRecord};
use longshore::{ProfileName, Scope, TenantId};
use tokio::sync::mpsc;

use super::register::away;
use super::sheet::Sheet;
use super::{Desk, Errand, Settled, TENANT_SHEET};
use crate::ask::AskError;
use crate::chat::Piece;
use crate::gateway::{Counter, Terms};

/// How many profiles are read at once.
const PAGE: u32 = 500;

#[async_trait]
impl Counter for Desk {
    async fn terms(&self, tenant: &TenantId, profile: &ProfileName) -> Result<Terms, AskError> {
        let entry = self.inner.register.find(tenant, Some(profile)).await?;
        let profile = &entry.profile;
        Ok(Terms {
            provider: Some(profile.provider),
            model: profile.model.clone(),
            max_tokens: profile.max_tokens,
            temperature: profile.temperature,
        })
    }

    async fn ask(&self, errand: &Errand, pieces: Option<&mpsc::Sender<Piece>>) -> Settled {
        self.inner.journal.room().await;
        Desk::ask(self, errand, pieces).await
    }

    fn note(&self, records: Vec<CallRecord>) {
        records.into_iter().for_each(|record| self.inner.journal.note(record));
    }

    async fn profiles(&self, tenant: &TenantId) -> Result<Vec<ProfileName>, AskError> {
        self.inner.register.may_ask(tenant).await?;
        let scope = Scope::Tenant(tenant.clone());
        let (mut names, mut after) = (Vec::new(), None::<String>);
        loop {
            let page = self.inner.ledger.profiles(&scope, after.as_deref(), PAGE).await;
            let page = page.map_err(|error| away(&error))?;
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
