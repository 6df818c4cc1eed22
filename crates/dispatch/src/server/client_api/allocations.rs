//! Lists and changes the allocations of a pool.

use std::sync::Arc;

use super::ClientApi;
use crate::launch::{Allocation, AllocationEntry, AllocationTable, Explanation, LaunchSetup};
use crate::request::{AllocationAction, AllocationChange, AllocationStatus};
use crate::system::BaseSystem;

/// The allocations of a server that launches workers.
#[derive(Clone)]
pub(in crate::server) struct Allocations {
    pub(in crate::server) table: Arc<AllocationTable>,
    pub(in crate::server) setup: LaunchSetup,
    /// Workers of other machines cannot connect.
    pub(in crate::server) only_local: bool,
}

impl ClientApi {
    pub(super) fn allocations(&self) -> Result<&Allocations, String> {
        let allocations = self.allocations.as_ref();
        allocations.ok_or_else(|| "this server does not launch workers".to_owned())
    }

    pub(super) async fn list_allocations(&self) -> Result<Vec<AllocationStatus>, String> {
        let now = self.view().await?.now;
        let entries = self.allocations()?.table.entries().into_iter();
        let statuses = entries.map(|AllocationEntry { allocation, status, is_leaving }| {
            let explanation = status.explain(now);
            AllocationStatus { allocation, is_leaving, explanation }
        });
        Ok(statuses.collect())
    }

    /// Adds an allocation. Returns the script of its jobs.
    pub(super) fn add_allocation(&self, allocation: Allocation, dry_run: bool) -> Result<String, String> {
        let Allocations { table, setup, only_local } = self.allocations()?;
        if *only_local && !dry_run && allocation.base != BaseSystem::Local {
            return Err(format!(
                "workers of {} could not connect: this server listens on this machine only; start the pool with \
                 --listen",
                allocation.base
            ));
        }
        let script = setup.script(&allocation).map_err(|error| error.to_string())?;
        if !dry_run {
            table.add(allocation)?;
        }
        Ok(script)
    }

    pub(super) fn change_allocation(&self, change: AllocationChange) -> Result<(), String> {
        let AllocationChange { name, action } = change;
        let table = &self.allocations()?.table;
        match action {
            AllocationAction::Pause => table.set_paused(&name, true),
            AllocationAction::Resume => table.set_paused(&name, false),
            AllocationAction::Resize { min, max, drain } => table.resize(&name, min, max, drain),
            AllocationAction::Remove { drain } => table.begin_removal(&name, drain),
        }
    }

    /// Why workers are not being launched, of all allocations together.
    pub(super) async fn explain_launches(&self) -> Result<Explanation, String> {
        let statuses = self.list_allocations().await?;
        let several = statuses.len() > 1;
        let mut all = Explanation::default();
        for AllocationStatus { allocation, explanation, .. } in statuses {
            let named = |words: String| if several { format!("{}: {words}", allocation.name) } else { words };
            all.wanted += explanation.wanted;
            all.registered += explanation.registered;
            all.pending.extend(explanation.pending.into_iter().map(named));
            all.last_error = all.last_error.or_else(|| explanation.last_error.map(named));
            all.next_try = [all.next_try, explanation.next_try].into_iter().flatten().min();
            all.asking = all.asking.or(explanation.asking);
        }
        Ok(all)
    }
}
