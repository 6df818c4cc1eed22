//! The most that a call may use and cost, computed before it is admitted, and what is refused
//! because its cost has no bound.

use longshore::accounts::NewCall;
use longshore::{TenantId, Timestamp};

use super::Inner;
use super::profile_cache::{ResolvedProfile, TenantContext};
use crate::model_api::{AskError, Code, Question};
use crate::pricing::{PriceMode, Prices};
use crate::profile::ANY_MODEL;

/// The most that a call may use and cost: reserved before it is sent.
#[derive(Clone, Copy)]
pub(super) struct CallBound<'p> {
    /// The prices of its model.
    pub(super) prices: &'p Prices,
    /// When it was made, which decides its rate.
    pub(super) at: Timestamp,
    pub(super) tokens_in: u64,
    pub(super) tokens_out: u64,
    pub(super) cost_picos: i64,
    /// The bound is a promise: the tenant has a budget, or another tenant lends the key.
    pub(super) metered: bool,
}

impl CallBound<'_> {
    /// The call, with what it reserves.
    pub(super) fn reserve(&self, call: NewCall) -> NewCall {
        let reserve_tokens = self.tokens_in + self.tokens_out;
        NewCall { reserve_tokens, reserve_picos: self.cost_picos, ..call }
    }
}

impl Inner {
    /// The most that a question may use and cost. Rejects a model that the profile does not offer
    /// and, where the bound is a promise, a question that has none.
    pub(super) async fn bound<'p>(
        &self,
        entry: &'p ResolvedProfile,
        tenant: &TenantId,
        question: &Question,
        mode: PriceMode,
    ) -> Result<CallBound<'p>, AskError> {
        let prices = entry.require_model(question.model.as_deref())?;
        let owner = self.profile_cache.tenant(tenant).await?;
        let metered = entry.lent || owner.has_budget;
        if metered {
            require_priced(entry, &owner, question, prices)?;
        }
        let (tokens_in, tokens_out) = (entry.provider.token_bound(question), question.max_tokens_out());
        let at = self.clock.now();
        let cost_picos = prices.at_most(tokens_in, tokens_out, at, mode).0;
        Ok(CallBound { prices, at, tokens_in, tokens_out, cost_picos, metered })
    }
}

impl ResolvedProfile {
    /// The prices of a model, by default the profile's.
    pub(super) fn require_model(&self, model: Option<&str>) -> Result<&Prices, AskError> {
        let model = self.profile.asked_model(model);
        self.profile.prices_of(model).ok_or_else(|| {
            let name = &self.name;
            let message = if self.profile.models.contains_key(ANY_MODEL) {
                format!("no price is known of model `{model}`, which profile `{name}` would ask by its `*`")
            } else {
                let offered = self.profile.offered_models().map(|model| format!("`{model}`"));
                let offered = offered.collect::<Vec<_>>().join(", ");
                format!("profile `{name}` does not offer model `{model}`, only {offered}")
            };
            AskError::new(Code::InvalidRequest, message)
        })
    }
}

impl Question {
    /// The most tokens of its answers.
    pub(super) fn max_tokens_out(&self) -> u64 {
        let choices = self.raw.as_ref().map_or(1, |raw| raw.choices);
        u64::from(self.max_tokens) * u64::from(choices)
    }
}

/// Rejects what may cost more than the prices say.
fn require_priced(
    entry: &ResolvedProfile,
    owner: &TenantContext,
    question: &Question,
    prices: &Prices,
) -> Result<(), AskError> {
    let profile = &entry.profile;
    if owner.has_cost_budget && profile.is_billed() && !prices.is_stated() {
        let message = format!("profile `{}` has no prices, which a budget in dollars needs", entry.name);
        return Err(AskError::new(Code::ProfileDisabled, message));
    }
    let Some(raw) = question.raw_for(profile.provider) else { return Ok(()) };
    let tier = raw.field("service_tier");
    let is_priced_tier = |what: &str| {
        let tier = tier.as_ref().and_then(|tier| tier.as_str());
        what == "`service_tier`" && tier.is_some_and(|tier| prices.has_tier(tier))
    };
    let unpriced: Vec<&str> =
        raw.unpriced.iter().map(|what| &**what).filter(|what| !is_priced_tier(what)).collect();
    if unpriced.is_empty() {
        return Ok(());
    }
    let why = if owner.has_budget { "the tenant has a budget" } else { "the profile's key is lent" };
    let what = unpriced.join(", ");
    let message = format!("the request has what may change its price, and {why}: leave out {what}");
    Err(AskError::new(Code::InvalidRequest, message))
}
