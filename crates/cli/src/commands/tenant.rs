//! `tenant`: weights, caps, bounds, budgets and suspension of tenants.

mod monthly_usage;

use anyhow::anyhow;
use longshore::accounts::{BudgetState, Ledger};
use longshore::store::{Capacity, Tenant, TenantChange};
use longshore::{Error, Kind, Store, TenantId, byte_size};
use serde::Serialize;

use crate::args::tenant::{TenantCommand as Typed, TenantSettingsArgs};
use crate::error::{WithHint, did_you_mean, hinted, usage};
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;
use crate::{audit, store};

use monthly_usage::MonthlyUsage;

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    let (store, ledger) = store::open_with_ledger(settings).await?;
    let tenants = TenantStore { store: &*store, ledger: &*ledger, settings };
    match typed {
        Typed::Add(typed) => tenants.add(&typed).await?,
        Typed::List => tenants.list().await?,
        Typed::Show { id } => tenants.show(&id).await?,
        Typed::Set(typed) => tenants.set(&typed).await?,
        Typed::Suspend { id } => tenants.suspend(&id, true).await?,
        Typed::Resume { id } => tenants.suspend(&id, false).await?,
        Typed::Remove { id } => tenants.remove(&id).await?,
    }
    Ok(ExitCode::Good)
}

struct TenantStore<'a> {
    store: &'a dyn Store,
    ledger: &'a dyn Ledger,
    settings: &'a Settings,
}

impl TenantStore<'_> {
    async fn add(&self, typed: &TenantSettingsArgs) -> anyhow::Result<()> {
        let id = &typed.id;
        if self.find(id).await?.is_some() {
            return Err(anyhow!("tenant `{id}` has settings already"))
                .hint(format!("`longshore tenant set {id} …` changes them"));
        }
        let tenant = self.put(id, change(typed, Capacity::default())).await?;
        self.put_budget(typed).await?;
        self.answer(&tenant, "was added")
    }

    async fn set(&self, typed: &TenantSettingsArgs) -> anyhow::Result<()> {
        let nothing = typed.weight.is_none() && typed.cap.is_none() && typed.allow_kind.is_empty();
        if nothing && typed.bounds.is_empty() && typed.budget.is_empty() {
            return Err(usage("nothing to set")).hint(
                "name --weight, --cap, --max-units, --max-bytes, --allow-kind, --budget-usd or --budget-tokens",
            );
        }
        let now = self.require(&typed.id).await?.map(|tenant| tenant.capacity);
        let tenant = self.put(&typed.id, change(typed, now.unwrap_or_default())).await?;
        self.put_budget(typed).await?;
        self.answer(&tenant, "was changed")
    }

    async fn suspend(&self, id: &TenantId, suspended: bool) -> anyhow::Result<()> {
        self.require(id).await?;
        let change = TenantChange { suspended: Some(suspended), ..TenantChange::default() };
        let tenant = self.put(id, change).await?;
        self.answer(&tenant, if suspended { "is suspended" } else { "is active again" })
    }

    async fn remove(&self, id: &TenantId) -> anyhow::Result<()> {
        if self.find(id).await?.is_none() {
            return Err(self.not_found(id).await?);
        }
        audit::record(self.ledger, "tenant.remove", Some(id), id).await?;
        let removed = self.store.remove_tenant(&self.settings.scope(), id).await;
        if let Err(Error::Invalid(_)) = removed {
            return removed.hint(format!("`longshore unit list --tenant {id}` shows its units"));
        }
        removed.map_err(|error| self.scope_error(error))?;
        let answer = serde_json::json!({ "tenant": id, "removed": true });
        self.settings.output.answer(&answer, || format!("the settings of tenant `{id}` are removed"))
    }

    async fn list(&self) -> anyhow::Result<()> {
        let tenants = self.store.tenants(&self.settings.scope()).await?;
        self.settings.output.list(&tenants, || table(&tenants))
    }

    async fn show(&self, id: &TenantId) -> anyhow::Result<()> {
        let Some(tenant) = self.find(id).await? else { return Err(self.not_found(id).await?) };
        let month = self.ledger.budget(&self.settings.scope(), id).await?;
        let shown = TenantJson { tenant: &tenant, month: MonthlyUsage::of(&month) };
        self.settings.output.record(&shown, || record(&tenant, &month))
    }

    async fn put_budget(&self, typed: &TenantSettingsArgs) -> anyhow::Result<()> {
        if typed.budget.is_empty() {
            return Ok(());
        }
        let (scope, id) = (self.settings.scope(), &typed.id);
        let now = self.ledger.budget(&scope, id).await?.budget;
        let budget = typed.budget.apply_to(now);
        if budget.is_none() && now.is_none() {
            return Ok(());
        }
        audit::record(self.ledger, "tenant.budget", Some(id), id).await?;
        self.ledger.put_budget(&scope, id, budget).await?;
        Ok(())
    }

    async fn put(&self, id: &TenantId, change: TenantChange) -> anyhow::Result<Tenant> {
        self.settings.scope().require(id).map_err(|error| self.scope_error(error))?;
        change.check()?;
        audit::record(self.ledger, "tenant.set", Some(id), id).await?;
        let put = self.store.put_tenant(&self.settings.scope(), id, change).await;
        put.map_err(|error| self.scope_error(error))
    }

    fn scope_error(&self, error: Error) -> anyhow::Error {
        match &self.settings.tenant {
            Some(own) => hinted(
                error.into(),
                format!("this command runs as tenant `{own}`: leave out --tenant (LONGSHORE_TENANT)"),
            ),
            None => error.into(),
        }
    }

    async fn find(&self, id: &TenantId) -> anyhow::Result<Option<Tenant>> {
        let tenants = self.store.tenants(&self.settings.scope()).await?;
        Ok(tenants.into_iter().find(|tenant| tenant.id == *id))
    }

    /// Finds a tenant that has settings or at least a lane: any other name is likely a typing
    /// error.
    async fn require(&self, id: &TenantId) -> anyhow::Result<Option<Tenant>> {
        let found = self.find(id).await?;
        if found.is_none() && !self.names().await?.contains(id) {
            return Err(self.not_found(id).await?);
        }
        Ok(found)
    }

    async fn not_found(&self, id: &TenantId) -> anyhow::Result<anyhow::Error> {
        let names = self.names().await?;
        let hint = match did_you_mean(id.as_str(), names.iter().map(TenantId::as_str)) {
            Some(same) if same == id.as_str() => {
                format!("it has units but no settings: `longshore tenant add {id}` adds some")
            }
            Some(suggestion) => format!("did you mean `{suggestion}`?"),
            None => format!("`longshore tenant add {id}` adds it"),
        };
        Ok(hinted(Error::not_found("tenant", id).into(), hint))
    }

    /// The tenants that have settings or a lane.
    async fn names(&self) -> anyhow::Result<Vec<TenantId>> {
        let scope = self.settings.scope();
        let mut names: Vec<TenantId> =
            self.store.tenants(&scope).await?.into_iter().map(|tenant| tenant.id).collect();
        names.extend(self.store.queues(&scope).await?.into_iter().map(|lane| lane.tenant));
        Ok(names)
    }

    fn answer(&self, tenant: &Tenant, became: &str) -> anyhow::Result<()> {
        self.settings.output.answer(tenant, || format!("tenant `{}` {became}", tenant.id))
    }
}

fn change(typed: &TenantSettingsArgs, now: Capacity) -> TenantChange {
    TenantChange {
        weight: typed.weight.map(|weight| weight.0),
        cap: typed.cap.map(|cap| cap.0.map(|cap| cap.0)),
        capacity: typed.bounds.apply_to(now),
        suspended: None,
        allowed_kinds: (!typed.allow_kind.is_empty())
            .then(|| typed.allow_kind.iter().filter_map(|kind| kind.0.clone()).collect()),
    }
}

/// A limit for people; `-` if there is none.
pub fn shown<T: ToString>(limit: Option<T>) -> String {
    limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string())
}

/// The kinds with the operator's rights that are open to it; `-` if there is none.
fn allowed_kinds(tenant: &Tenant) -> String {
    let kinds: Vec<&str> = tenant.allowed_kinds.iter().map(Kind::as_str).collect();
    shown(Some(kinds.join(", ")).filter(|kinds| !kinds.is_empty()))
}

fn state(tenant: &Tenant) -> &'static str {
    if tenant.suspended { "suspended" } else { "open" }
}

fn table(tenants: &[Tenant]) -> Table {
    let [weight, cap, units, bytes] = ["weight", "cap", "max units", "max bytes"].map(right);
    let [ready, leased, live, size] = ["ready", "leased", "live", "bytes"].map(right);
    let kinds = cell("allowed kinds");
    let heading =
        [cell("tenant"), cell("state"), weight, cap, units, bytes, ready, leased, live, size, kinds];
    let empty = "no tenant has settings; without them a tenant has weight 1 and no limits";
    let mut table = Table::new(heading, empty);
    for tenant in tenants {
        table.row([
            cell(&tenant.id),
            cell(state(tenant)),
            right(tenant.weight),
            right(shown(tenant.cap)),
            right(shown(tenant.capacity.units)),
            right(shown(tenant.capacity.bytes.map(byte_size::format))),
            right(tenant.counts.ready),
            right(tenant.counts.leased),
            right(tenant.counts.live()),
            right(byte_size::format(tenant.bytes)),
            cell(allowed_kinds(tenant)),
        ]);
    }
    table
}

/// A tenant and its month.
#[derive(Serialize)]
struct TenantJson<'a> {
    #[serde(flatten)]
    tenant: &'a Tenant,
    month: MonthlyUsage<'a>,
}

fn record(tenant: &Tenant, budget: &BudgetState) -> Table {
    let mut table = Table::record();
    table.field("tenant", &tenant.id);
    table.field("state", state(tenant));
    table.field("weight", tenant.weight);
    table.field("cap", shown(tenant.cap));
    table.field("max units", shown(tenant.capacity.units));
    table.field("max bytes", shown(tenant.capacity.bytes.map(byte_size::format)));
    table.field("allowed kinds", allowed_kinds(tenant));
    monthly_usage::fields(&mut table, budget);
    table.field("since", tenant.created_at);
    for state in longshore::UnitState::ALL {
        table.field(state.as_str(), tenant.counts.of(state));
    }
    table.field("bytes", byte_size::format(tenant.bytes));
    table
}
