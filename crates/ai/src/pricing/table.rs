//! The price table: dated prices of the providers' own models. One ships with the binary, and
//! `longshore price update` stores a newer one. A profile that states no prices has those of the
//! table.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use longshore::accounts::Ledger;
use longshore::time::Timestamp;
use longshore::{Error, ProfileName, Result as StoreResult, Scope, TenantId};
use serde::{Deserialize, Serialize};

use super::Prices;
use crate::profile::{ANY_MODEL, Profile, ProviderName};

/// Name of the document with the table of `price update`, among the profiles of the default tenant:
/// a change is announced like that of a profile.
pub const PRICE_TABLE: &str = ".prices";

/// Age from which a table is reported as old.
pub const MAX_TABLE_AGE: Duration = Duration::from_secs(180 * 24 * 3600);

/// The table that ships with the binary.
static SHIPPED: LazyLock<PriceTable> = LazyLock::new(|| {
    let shipped = PriceTable::parse(include_str!("table.toml"));
    // Checked by a test.
    shipped.unwrap_or_else(|error| unreachable!("the shipped price table: {error}"))
});

/// Prices of models, by provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceTable {
    /// The day on which the prices were read, as `2026-11-18`.
    pub date: String,
    /// Where they were read, by provider.
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
    /// Prices by provider and model.
    pub models: BTreeMap<ProviderName, BTreeMap<String, Prices>>,
}

/// Why a price table is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PriceTableError {
    /// It is no TOML, or has unknown or missing members.
    #[error("{0}")]
    Format(#[from] toml::de::Error),
    /// Its date is no day.
    #[error("`date` is `{0}`, which is no day, as 2026-11-18")]
    Date(String),
    /// A model has no prices.
    #[error("model `{1}` of {0} has no prices")]
    Unpriced(ProviderName, String),
}

impl PriceTable {
    /// The table that ships with the binary.
    pub fn shipped() -> &'static Self {
        &SHIPPED
    }

    /// The shipped table, merged with the one that `price update` stored.
    pub async fn load(ledger: &dyn Ledger) -> StoreResult<Self> {
        let shipped = Self::shipped().clone();
        Ok(match Self::stored(ledger).await? {
            Some(stored) => shipped.merged(stored),
            None => shipped,
        })
    }

    /// The table that `price update` stored.
    pub async fn stored(ledger: &dyn Ledger) -> StoreResult<Option<Self>> {
        let name = ProfileName::new(PRICE_TABLE).map_err(|error| Error::Invalid(error.to_string()))?;
        let owner = TenantId::default();
        match ledger.profile(&Scope::Tenant(owner.clone()), &owner, &name).await {
            Ok(record) => Ok(Self::deserialize(record.body)
                .inspect_err(|error| tracing::warn!(%error, "the stored price table cannot be read"))
                .ok()),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Parses a table.
    pub fn parse(toml: &str) -> Result<Self, PriceTableError> {
        let table: Self = toml::from_str(toml)?;
        if table.read_at().is_none() {
            return Err(PriceTableError::Date(table.date));
        }
        for (provider, models) in &table.models {
            if let Some((model, _)) = models.iter().find(|(_, prices)| !prices.is_stated()) {
                return Err(PriceTableError::Unpriced(*provider, model.clone()));
            }
        }
        Ok(table)
    }

    /// When its prices were read.
    fn read_at(&self) -> Option<Timestamp> {
        Timestamp::parse(&format!("{}T00:00:00Z", self.date)).ok()
    }

    /// This table and another one: where both have a model, the newer one counts.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        let (mut older, newer) = if self.date <= other.date { (self, other) } else { (other, self) };
        for (provider, models) in newer.models {
            older.models.entry(provider).or_default().extend(models);
        }
        older.sources.extend(newer.sources);
        Self { date: newer.date, ..older }
    }

    /// The age of its prices, if they are so old that they should be checked.
    pub fn old_age(&self, now: Timestamp) -> Option<Duration> {
        let age = now.since(self.read_at().unwrap_or(Timestamp::ZERO));
        (age > MAX_TABLE_AGE).then_some(age)
    }

    /// The prices of a provider's model.
    pub fn prices(&self, provider: ProviderName, model: &str) -> Option<&Prices> {
        self.models.get(&provider)?.get(model)
    }

    /// Completes the prices of a profile that is billed by its provider: of its model and of its
    /// further models, where it states none. With `*` it offers all models of the table.
    pub fn complete(&self, profile: &mut Profile) {
        let provider = profile.provider;
        if !profile.is_billed() {
            return;
        }
        if profile.models.get(ANY_MODEL).is_some_and(|any| !any.is_stated()) {
            let others = self.models.get(&provider).into_iter().flatten();
            for (model, prices) in others.filter(|(model, _)| **model != profile.model) {
                profile.models.entry(model.clone()).or_insert_with(|| prices.clone());
            }
        }
        let of = |model: &str| self.prices(provider, model).cloned().unwrap_or_default();
        for (model, prices) in profile.models.iter_mut().filter(|(_, prices)| !prices.is_stated()) {
            *prices = of(model);
        }
        if !profile.prices.is_stated() {
            profile.prices = of(&profile.model);
        }
    }
}
