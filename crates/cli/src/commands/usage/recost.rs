//! `usage recost`: recomputes the cost of calls at their profiles' current prices for the time of
//! the call.

use std::collections::HashMap;

use longshore::accounts::{Call, CallEnd, CallMode, CallStatus, CostCorrection, Ledger, MAX_CALL_COST};
use longshore::{Error, ProfileName, Scope, TenantId};
use longshore_ai::{Answer, PriceMode, PriceTable, Prices, Profile};
use serde::Serialize;

use crate::amount_args;
use crate::args::usage::RecostArgs as Typed;
use crate::commands::{now, profile};
use crate::settings::Settings;

/// Calls per page.
const PAGE_SIZE: u32 = 1000;

/// The result.
#[derive(Debug, Default, Serialize)]
struct RecostReport {
    /// Calls with a correct cost.
    right: u64,
    /// Calls with a changed cost.
    changed: u64,
    /// Calls that stay as they are: open, maybe billed, or without a profile.
    left: u64,
    /// The cost of all recomputed calls before and after.
    before_picos: i64,
    after_picos: i64,
    before_usd: String,
    after_usd: String,
    /// Nothing was written.
    dry_run: bool,
}

/// Recomputes the calls that match.
pub async fn run(ledger: &dyn Ledger, typed: &Typed, settings: &Settings) -> anyhow::Result<()> {
    let filter = typed.which.filter(settings.tenant.clone(), now());
    let (mut profile_cache, mut report, mut after) =
        (ProfileCache::default(), RecostReport::default(), None::<String>);
    loop {
        let page = ledger.calls(&settings.scope(), &filter, after.as_deref(), PAGE_SIZE).await?;
        let mut recosts = Vec::new();
        for call in &page.items {
            let profile = profile_cache.profile(ledger, &call.call.tenant, &call.call.profile).await?;
            let prices = profile.and_then(|profile| profile.prices_of(&call.call.model));
            recosts.extend(report.recost_call(call, prices));
        }
        if !typed.dry_run && !recosts.is_empty() {
            ledger.correct_costs(&settings.scope(), recosts).await?;
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    report.dry_run = typed.dry_run;
    report.print_result(settings)
}

impl RecostReport {
    /// Counts a call, and returns the correction if its cost differs.
    fn recost_call(&mut self, call: &Call, prices: Option<&Prices>) -> Option<CostCorrection> {
        let settled = [CallStatus::Success, CallStatus::Error].contains(&call.status);
        let end = call.end.as_ref().filter(|_| settled);
        let (Some(end), Some(prices)) = (end, prices) else {
            self.left += 1;
            return None;
        };
        let cost = prices.cost(&answer(end), call.opened_at, mode(end)).0.min(MAX_CALL_COST);
        self.before_picos = self.before_picos.saturating_add(end.cost_picos);
        self.after_picos = self.after_picos.saturating_add(cost);
        if cost == end.cost_picos {
            self.right += 1;
            return None;
        }
        self.changed += 1;
        Some(CostCorrection { id: call.call.id, cost_picos: cost })
    }

    fn print_result(mut self, settings: &Settings) -> anyhow::Result<()> {
        self.before_usd = amount_args::format_plain(self.before_picos);
        self.after_usd = amount_args::format_plain(self.after_picos);
        settings.output.answer(&self, || {
            let Self { right, changed, left, before_picos, after_picos, dry_run, .. } = &self;
            let became = if *dry_run { "would be changed" } else { "were changed" };
            format!(
                "{changed} calls {became}, {right} were right, {left} stay as they are: {} instead \
                 of {}",
                amount_args::format_usd(*after_picos),
                amount_args::format_usd(*before_picos),
            )
        })
    }
}

fn mode(end: &CallEnd) -> PriceMode {
    match end.mode {
        CallMode::Direct => PriceMode::Direct,
        CallMode::Batch => PriceMode::Batch,
    }
}

fn answer(end: &CallEnd) -> Answer {
    Answer {
        tokens_in: end.tokens_in,
        tokens_out: end.tokens_out,
        tokens_cached: end.tokens_cached,
        tokens_cache_write: end.tokens_cache_write.saturating_sub(end.tokens_cache_write_long),
        tokens_cache_write_long: end.tokens_cache_write_long,
        tier: end.tier.clone(),
        ..Answer::default()
    }
}

/// Profiles that were read; `None` for removed ones.
#[derive(Default)]
struct ProfileCache(HashMap<(TenantId, ProfileName), Option<Profile>>);

impl ProfileCache {
    async fn profile(
        &mut self,
        ledger: &dyn Ledger,
        tenant: &TenantId,
        name: &ProfileName,
    ) -> anyhow::Result<Option<&Profile>> {
        let key = (tenant.clone(), name.clone());
        if !self.0.contains_key(&key) {
            let profile = look_up(ledger, tenant, name).await?;
            self.0.insert(key.clone(), profile);
        }
        Ok(self.0.get(&key).and_then(Option::as_ref))
    }
}

async fn look_up(
    ledger: &dyn Ledger,
    tenant: &TenantId,
    name: &ProfileName,
) -> anyhow::Result<Option<Profile>> {
    let record = match ledger.profile(&Scope::Tenant(tenant.clone()), tenant, name).await {
        Ok(record) => record,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let whole = profile::resolve_profile(ledger, &record).await?;
    let mut profile = profile::read(name, whole.body(), false)?;
    PriceTable::load(ledger).await?.complete(&mut profile);
    Ok(Some(profile))
}
