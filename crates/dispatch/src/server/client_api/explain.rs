//! Explains why a unit does not run, and finds scripts that no worker can ever run.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::store::UnitFilter;
use longshore::{BatchStatus, Kind, Scope, TenantId, Unit, UnitId, UnitState};
use tokio::time::Instant;

use super::admin::{error_text, requested, scope};
use super::{ClientApi, Event};
use crate::launch::Demand;
use crate::request::{TaskPosition, UnfitScripts, UnitExplanation, WaitReason};
use crate::scheduler::{Obstacle, ResourceRequest};
use crate::script::KIND;

/// Number of ready units, the newest, in which status looks for scripts that no worker can run.
const MAX_LISTED: u32 = 1000;
/// Requests of older scripts that are remembered.
const MAX_SEEN: usize = 100;
/// Interval between two such searches.
const SEARCH_INTERVAL: Duration = Duration::from_secs(2);

impl ClientApi {
    pub(super) async fn explain_unit(
        &self,
        tenant: Option<TenantId>,
        id: UnitId,
    ) -> Result<UnitExplanation, String> {
        let scope = scope(tenant);
        let unit = self.client.store().unit(&scope, id).await.map_err(error_text)?;
        let script = self.script_of(&scope, &unit).await;
        let request = requested(&unit, script.as_ref());
        let asked = request.clone();
        let core = self.query_core(move |answer| Event::Explain(id, asked, answer)).await?;
        let mut explanation = UnitExplanation {
            unit: id,
            state: unit.state,
            request: request.into(),
            position: core.position,
            reasons: Vec::new(),
            unfit: Vec::new(),
            workers: Vec::new(),
        };
        let at_worker = matches!(
            explanation.position,
            Some(TaskPosition::Assigned { .. } | TaskPosition::Running { .. } | TaskPosition::Restored)
        );
        if unit.state.is_final() || at_worker {
            return Ok(explanation);
        }
        (explanation.workers, explanation.unfit) = (core.workers, core.unfit);
        explanation.reasons = self.store_reasons(&scope, &unit).await?;
        if core.shutting_down {
            explanation.reasons.push(WaitReason::ShuttingDown);
        }
        if explanation.workers.is_empty() {
            explanation.reasons.push(WaitReason::NoWorkers);
        }
        let fits = explanation.workers.iter().any(|worker| worker.obstacles.is_empty());
        if fits && explanation.reasons.is_empty() {
            explanation.reasons.push(WaitReason::NextClaim);
        }
        Ok(explanation)
    }

    /// Why the store does not hand the unit out.
    async fn store_reasons(&self, scope: &Scope, unit: &Unit) -> Result<Vec<WaitReason>, String> {
        let mut reasons = Vec::new();
        match unit.state {
            UnitState::Blocked => reasons.push(WaitReason::Dependencies),
            UnitState::Scheduled => reasons.push(WaitReason::Scheduled { at: unit.since }),
            _ => {}
        }
        let store = self.client.store();
        let batch = match &unit.batch {
            Some(batch) => Some(store.batch(scope, batch).await.map_err(error_text)?),
            None => None,
        };
        if let Some(batch) = &batch
            && batch.status == BatchStatus::Paused
        {
            let why = batch.reason.clone().unwrap_or_default();
            reasons.push(WaitReason::BatchPaused { batch: batch.id.clone(), why });
        }
        let lanes = store.queues(&Scope::Tenant(unit.tenant.clone())).await.map_err(error_text)?;
        let lane = lanes.into_iter().find(|lane| lane.queue == unit.queue && lane.tenant == unit.tenant);
        if let Some(lane) = &lane {
            let tenant = || unit.tenant.clone();
            reasons.extend(lane.queue_paused.then_some(WaitReason::QueuePaused));
            reasons.extend(lane.lane_paused.then(|| WaitReason::LanePaused { tenant: tenant() }));
            reasons.extend(lane.suspended.then(|| WaitReason::Suspended { tenant: tenant() }));
        }
        if unit.state != UnitState::Ready {
            return Ok(reasons);
        }
        if let Some((limit, running)) = lane.and_then(|lane| Some((lane.cap?, lane.counts.leased)))
            && running >= u64::from(limit)
        {
            reasons.push(WaitReason::TenantCap { limit, running });
        }
        if let Some(cap) = &unit.cap {
            // Of a job only the store knows how many scripts of one task run.
            match batch.filter(|batch| cap.key == format!("array {}", batch.id)) {
                Some(batch) if batch.counts.leased >= u64::from(cap.limit) => {
                    let running = batch.counts.leased;
                    reasons.push(WaitReason::ArrayCap { limit: cap.limit, running });
                }
                Some(_) => {}
                None => reasons.push(WaitReason::CapKey { key: cap.key.clone(), limit: cap.limit }),
            }
        }
        Ok(reasons)
    }

    /// Of each request: what keeps it from every worker of the pool, for ever. Empty: it can run.
    pub(super) async fn find_unfit(&self, requests: Vec<ResourceRequest>) -> Vec<Vec<Obstacle>> {
        self.query_core(move |answer| Event::FindUnfit(requests, answer)).await.unwrap_or_default()
    }

    /// Ready scripts in the store that no worker can ever run.
    pub(super) async fn unfit_ready(&self, ready: u64) -> Vec<UnfitScripts> {
        if ready == 0 {
            return Vec::new();
        }
        let mut last = self.unfit.lock().await;
        if let Some((at, found)) = &*last
            && at.elapsed() < SEARCH_INTERVAL
        {
            return found.clone();
        }
        let found = self.search_unfit().await;
        *last = Some((Instant::now(), found.clone()));
        found
    }

    async fn search_unfit(&self) -> Vec<UnfitScripts> {
        let requests = self.ready_requests().await;
        let unfit = self.find_unfit(requests.keys().cloned().collect()).await;
        let found = requests.into_values().zip(unfit);
        let found = found.map(|((scripts, unit), obstacles)| UnfitScripts { scripts, unit, obstacles });
        found.filter(|scripts| !scripts.obstacles.is_empty()).collect()
    }

    /// What the newest ready scripts request, each with their number and one of them.
    async fn ready_requests(&self) -> BTreeMap<ResourceRequest, (u64, UnitId)> {
        let filter =
            UnitFilter { state: Some(UnitState::Ready), kind: Kind::new(KIND).ok(), ..UnitFilter::default() };
        let page = self.client.store().units(&Scope::All, &filter, None, MAX_LISTED).await;
        let mut requests: BTreeMap<ResourceRequest, (u64, UnitId)> = BTreeMap::new();
        for unit in page.map(|page| page.items).unwrap_or_default() {
            // Without the time limit, which is in the payload. Such a script is claimed, and the core
            // reports it.
            let request = ResourceRequest::of_unit(&unit);
            requests.entry(request).or_insert((0, unit.id)).0 += 1;
        }
        requests
    }

    /// The scripts that are ready in the store. Of many scripts only the newest are read; the rest is
    /// assumed to request the same.
    pub(in crate::server) async fn ready_demand(&self) -> Vec<Demand> {
        let ready = self.ready().await;
        if ready == 0 {
            return Vec::new();
        }
        let mut requests = self.ready_requests().await;
        let read: u64 = requests.values().map(|(scripts, _)| *scripts).sum();
        let is_sample = read >= u64::from(MAX_LISTED);
        let mut seen = self.seen_requests.lock().await;
        if is_sample {
            // Older scripts that still wait, and of which the sample has none.
            for (request, unit) in std::mem::take(&mut *seen) {
                if requests.contains_key(&request) {
                    continue;
                }
                let found = self.client.store().unit(&Scope::All, unit).await;
                if found.is_ok_and(|found| found.state == UnitState::Ready) {
                    requests.insert(request, (1, unit));
                }
            }
        }
        *seen = requests.iter().map(|(request, (_, unit))| (request.clone(), *unit)).take(MAX_SEEN).collect();
        drop(seen);
        let scale =
            |scripts: u64| if is_sample { (scripts * ready.max(read)).div_ceil(read) } else { scripts };
        let demand = requests.into_iter();
        demand.map(|(request, (scripts, _))| Demand { request, scripts: scale(scripts) }).collect()
    }
}
