//! `profile`: configures providers, models, keys, prices and limits.
//!
//! A profile is a document with an owner. `profile/document.rs` builds it from the arguments,
//! `profile/check.rs` checks it together with the templates it extends
//! (`profile/resolve_inheritance.rs`), and only then it is written. The tenant's own settings are
//! in `profile/tenant.rs`.

mod check;
mod document;
mod resolve_inheritance;
mod show;
mod tenant;
mod test;

use std::sync::Arc;

use anyhow::anyhow;
use longshore::accounts::{Keys, Ledger, ProfileChange, ProfileRecord, PutProfile};
use longshore::{Error, ProfileName, Scope, TenantId};
use longshore_ai::{PriceTable, TENANT_SETTINGS};
use serde_json::{Value, json};

use super::ledger;
use crate::args::profile::{ProfileAddArgs, ProfileCommand as Typed, ProfileSetArgs};
use crate::args::unit_worker::PageArgs;
use crate::audit;
use crate::error::{WithHint, did_you_mean, hinted, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;

pub use check::read;
pub use resolve_inheritance::resolve_profile;

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    let profiles = ProfileStore::open(settings).await?;
    match typed {
        Typed::Add(typed) => profiles.add(&typed).await?,
        Typed::List { page } => profiles.list(&page).await?,
        Typed::Show(typed) => profiles.show(&typed.name).await?,
        Typed::Set(typed) => profiles.set(&typed).await?,
        Typed::Test(typed) => test::run(&profiles, &typed).await?,
        Typed::Suspend(typed) => profiles.suspend(&typed.name, true).await?,
        Typed::Resume(typed) => profiles.suspend(&typed.name, false).await?,
        Typed::Remove(typed) => profiles.remove(&typed.name).await?,
        Typed::Default(typed) => tenant::default(&profiles, typed).await?,
        Typed::Limits(typed) => tenant::limits(&profiles, *typed).await?,
    }
    Ok(ExitCode::Good)
}

/// The profiles of the settings' tenant.
struct ProfileStore<'a> {
    ledger: Arc<dyn Ledger>,
    scope: Scope,
    tenant: TenantId,
    settings: &'a Settings,
}

/// How many names are searched for a similar one.
const MAX_NAMES: u32 = 1000;

impl<'a> ProfileStore<'a> {
    async fn open(settings: &'a Settings) -> anyhow::Result<Self> {
        let tenant = settings.tenant.clone().unwrap_or_default();
        Ok(Self { ledger: ledger(settings).await?, scope: settings.scope(), tenant, settings })
    }

    async fn add(&self, typed: &ProfileAddArgs) -> anyhow::Result<()> {
        let name = check_name(&typed.named.name)?;
        if self.find(name).await?.is_some() {
            return Err(anyhow!("profile `{name}` exists already"))
                .hint(format!("`longshore profile set {name} …` changes it"));
        }
        let body = document::new(typed)?;
        self.check(name, &body).await?;
        let record = self.put(name, Some(body), None, Some(0)).await?;
        self.answer(&record, "was added")
    }

    async fn set(&self, typed: &ProfileSetArgs) -> anyhow::Result<()> {
        let name = check_name(&typed.named.name)?;
        let record = self.require(name).await?;
        let body = document::changed(record.body, typed)?;
        self.check(name, &body).await?;
        let record = self.put(name, Some(body), None, Some(record.revision)).await?;
        self.answer(&record, "was changed")
    }

    async fn suspend(&self, name: &ProfileName, suspended: bool) -> anyhow::Result<()> {
        self.require(check_name(name)?).await?;
        let record = self.put(name, None, Some(suspended), None).await?;
        self.answer(&record, if suspended { "is suspended" } else { "is active again" })
    }

    async fn remove(&self, name: &ProfileName) -> anyhow::Result<()> {
        self.require(check_name(name)?).await?;
        let remove = ProfileChange::Remove(self.tenant.clone(), name.clone());
        audit::record(&*self.ledger, "profile.remove", Some(&self.tenant), name).await?;
        self.ledger.change_profile(&self.scope, remove).await?;
        let answer = json!({ "tenant": self.tenant, "profile": name, "removed": true });
        self.settings.output.answer(&answer, || format!("profile `{name}` is removed"))
    }

    async fn list(&self, page: &PageArgs) -> anyhow::Result<()> {
        let found = self.ledger.profiles(&self.scope, None, page.after.as_deref(), page.limit).await?;
        let (mut sheets, profiles): (Vec<_>, Vec<_>) =
            found.items.into_iter().partition(|record| record.name.as_str().starts_with('.'));
        sheets.retain(|record| record.name.as_str() == TENANT_SETTINGS);
        let output = self.settings.output;
        output.list(&profiles, || show::table(&profiles, &sheets))?;
        if let Some(next) = found.next {
            output.note(format!("there are more: --after {next}"));
        }
        Ok(())
    }

    async fn show(&self, name: &ProfileName) -> anyhow::Result<()> {
        let record = self.require(check_name(name)?).await?;
        let whole = resolve_profile(&*self.ledger, &record).await?;
        let table = PriceTable::load(&*self.ledger).await?;
        show::one(&record, whole.body(), &table, self.settings)
    }

    /// Checks a document with the templates it extends.
    async fn check(&self, name: &ProfileName, body: &Value) -> anyhow::Result<()> {
        check::check_fields(body)?;
        let whole = resolve_inheritance::of(&*self.ledger, &self.tenant, name, body).await?;
        let table = PriceTable::load(&*self.ledger).await?;
        for warning in check::profile(name, body, whole.body(), &table)? {
            self.warn(&warning);
        }
        self.check_others(name, body).await
    }

    /// Checks that the keys and profiles that the document names exist. They may be added later, so
    /// this only warns.
    async fn check_others(&self, name: &ProfileName, body: &Value) -> anyhow::Result<()> {
        for key in check::vault_keys(body) {
            let keys: &dyn Keys = &*self.ledger;
            if keys.versions(&self.scope, &self.tenant, &key).await?.is_empty() {
                self.no_key(&key);
            }
        }
        for other in check::fallback(body) {
            if other == *name {
                return Err(usage(format!("profile `{name}` cannot fall back to itself")))
                    .hint("name another one by --fallback");
            }
            if self.find(&other).await?.is_none() {
                self.warn(&format!("there is no profile `{other}` to fall back to yet"));
            }
        }
        Ok(())
    }

    fn no_key(&self, key: &longshore::KeyName) {
        let tenant = &self.tenant;
        self.warn(&format!("tenant `{tenant}` has no key `{key}` yet: `longshore key add {key}`"));
    }

    fn warn(&self, words: &str) {
        self.settings.output.note(format!("warning: {words}"));
    }

    async fn put(
        &self,
        name: &ProfileName,
        body: Option<Value>,
        suspended: Option<bool>,
        expected: Option<u64>,
    ) -> anyhow::Result<ProfileRecord> {
        let (tenant, name) = (self.tenant.clone(), name.clone());
        audit::record(&*self.ledger, "profile.set", Some(&tenant), &name).await?;
        let put = PutProfile { tenant, name, body, suspended, expected };
        let put = self.ledger.put_profile(&self.scope, put).await;
        match put {
            Err(Error::Invalid(_)) => put.hint("it was changed meanwhile: check it and try again"),
            put => Ok(put?),
        }
    }

    async fn find(&self, name: &ProfileName) -> anyhow::Result<Option<ProfileRecord>> {
        match self.ledger.profile(&self.scope, &self.tenant, name).await {
            Ok(record) => Ok(Some(record)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn require(&self, name: &ProfileName) -> anyhow::Result<ProfileRecord> {
        match self.find(name).await? {
            Some(record) => Ok(record),
            None => Err(self.not_found(name).await?),
        }
    }

    async fn not_found(&self, name: &ProfileName) -> anyhow::Result<anyhow::Error> {
        let own = Scope::Tenant(self.tenant.clone());
        let found = self.ledger.profiles(&own, None, None, MAX_NAMES).await?.items;
        let names = found.iter().map(|record| record.name.as_str());
        let hint = match did_you_mean(name.as_str(), names) {
            Some(suggestion) => format!("did you mean `{suggestion}`?"),
            None => format!(
                "`longshore profile list` shows the profiles; searched those of tenant `{}`",
                self.tenant
            ),
        };
        Ok(hinted(Error::not_found("profile", name).into(), hint))
    }

    fn answer(&self, record: &ProfileRecord, became: &str) -> anyhow::Result<()> {
        self.settings.output.answer(record, || format!("profile `{}` {became}", record.name))
    }
}

/// A name that users may choose: names that begin with a dot are internal.
fn check_name(name: &ProfileName) -> anyhow::Result<&ProfileName> {
    if name.as_str().starts_with('.') {
        return Err(usage(format!("profile `{name}` begins with a dot")))
            .hint("such names are reserved for settings; `longshore profile limits` sets the tenant's");
    }
    Ok(name)
}
