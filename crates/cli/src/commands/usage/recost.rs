//! `usage recost`: what calls cost, computed anew at the prices that their profiles have now for the
//! time of the call.

use std::collections::HashMap;

use longshore::ledger::{Call, CallEnd, CallMode, CallStatus, Ledger, Recost};
use longshore::{Error, ProfileName, Scope, TenantId};
use longshore_ai::{Answer, Mode, Prices};
use serde::{Deserialize, Serialize};

use crate::args::usage::Recost as Typed;
use crate::commands::{now, profile};
use crate::money;
use crate::settings::Settings;

/// How many calls are looked at at once.
const PAGE: u32 = 1000;

/// What came of it.
#[derive(Debug, Default, Serialize)]
struct Outcome {
    /// Calls whose cost is right.
    right: u64,
    /// Calls whose cost was not.
    changed: u64,
    /// Calls that stay as they are: under way, maybe billed, or without a profile.
    left: u64,
    /// What all that were looked at cost before, and after.
    before_picos: i64,
    after_picos: i64,
    before_usd: String,
    after_usd: String,
    /// Nothing was written.
    dry_run: bool,
}

/// Goes through the calls.
pub async fn run(ledger: &dyn Ledger, typed: &Typed, settings: &Settings) -> anyhow::Result<()> {
    let filter = typed.which.filter(settings.tenant.clone(), now());
    let (mut known, mut outcome, mut after) =
        (Known::default(), Outcome::default(), None::<String>);
    loop {
        let page = ledger.calls(&settings.scope(), &filter, after.as_deref(), PAGE).await?;
        let mut recosts = Vec::new();
        for call in &page.items {
            let prices = known.prices(ledger, &call.call.tenant, &call.call.profile).await?;
            recosts.extend(outcome.weigh(call, prices));
        }
        if !typed.dry_run && !recosts.is_empty() {
            ledger.recost(&settings.scope(), recosts).await?;
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    outcome.dry_run = typed.dry_run;
    outcome.tell(settings)
}

impl Outcome {
    /// Counts a call, and corrects it if its cost is another.
    fn weigh(&mut self, call: &Call, prices: Option<&Prices>) -> Option<Recost> {
        let settled = [CallStatus::Success, CallStatus::Error].contains(&call.status);
        let end = call.end.as_ref().filter(|_| settled);
        let (Some(end), Some(prices)) = (end, prices) else {
            self.left += 1;
            return None;
        };
        let cost = prices.cost(&answer(end), call.opened_at, mode(end)).0;
        self.before_picos = self.before_picos.saturating_add(end.cost_picos);
        self.after_picos = self.after_picos.saturating_add(cost);
        if cost == end.cost_picos {
            self.right += 1;
            return None;
        }
        self.changed += 1;
        Some(Recost { id: call.call.id, cost_picos: cost })
    }

    fn tell(mut self, settings: &Settings) -> anyhow::Result<()> {
        self.before_usd = money::exact(self.before_picos);
        self.after_usd = money::exact(self.after_picos);
        settings.output.answer(&self, || {
            let Self { right, changed, left, before_picos, after_picos, dry_run, .. } = &self;
            let became = if *dry_run { "would be changed" } else { "were changed" };
            format!(
                "{changed} calls {became}, {right} were right, {left} stay as they are: {} instead \
                 of {}",
                money::shown(*after_picos),
                money::shown(*before_picos),
            )
        })
    }
}

fn mode(end: &CallEnd) -> Mode {
    match end.mode {
        CallMode::Direct => Mode::Direct,
        CallMode::Batch => Mode::Batch,
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

/// Prices of profiles that were looked up; `None` for those that are gone.
#[derive(Default)]
struct Known(HashMap<(TenantId, ProfileName), Option<Prices>>);

impl Known {
    async fn prices(
        &mut self,
        ledger: &dyn Ledger,
        tenant: &TenantId,
        name: &ProfileName,
    ) -> anyhow::Result<Option<&Prices>> {
        let key = (tenant.clone(), name.clone());
        if !self.0.contains_key(&key) {
            let prices = look_up(ledger, tenant, name).await?;
            self.0.insert(key.clone(), prices);
        }
        Ok(self.0.get(&key).and_then(Option::as_ref))
    }
}

async fn look_up(
    ledger: &dyn Ledger,
    tenant: &TenantId,
    name: &ProfileName,
) -> anyhow::Result<Option<Prices>> {
    let record = match ledger.profile(&Scope::Tenant(tenant.clone()), tenant, name).await {
        Ok(record) => record,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let whole = profile::whole(ledger, &record).await?;
    match whole.body().get("prices") {
        Some(prices) => Ok(Some(Prices::deserialize(prices)?)),
        None => Ok(Some(Prices::default())),
    }
}
