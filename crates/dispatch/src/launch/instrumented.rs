//! Wrapper of a base system that publishes its pending query.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::status_snapshot::LauncherStatus;
use crate::system::{BaseSystem, Job, JobEnd, JobId, JobState, System, SystemError};

/// Forwards all calls, and records the pending one in `status`.
pub(super) struct Instrumented {
    pub(super) system: Box<dyn System>,
    pub(super) status: Arc<LauncherStatus>,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl System for Instrumented {
    fn base(&self) -> BaseSystem {
        self.system.base()
    }

    fn name(&self) -> &'static str {
        self.system.name()
    }

    fn script(&self, job: &Job) -> Result<String, SystemError> {
        self.system.script(job)
    }

    async fn submit(&self, job: &Job) -> Result<JobId, SystemError> {
        let _query = self.status.begin_query("for a worker");
        self.system.submit(job).await
    }

    async fn status(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, JobState>, SystemError> {
        let _query = self.status.begin_query("how its jobs are");
        self.system.status(ids).await
    }

    async fn cancel(&self, ids: &[JobId]) -> Result<(), SystemError> {
        let _query = self.status.begin_query("to end jobs");
        self.system.cancel(ids).await
    }

    async fn ends(&self, gone: &[JobId]) -> Result<BTreeMap<JobId, JobEnd>, SystemError> {
        let _query = self.status.begin_query("how jobs ended");
        self.system.ends(gone).await
    }

    async fn find(&self, names: &[String]) -> Result<Vec<(String, JobId)>, SystemError> {
        let _query = self.status.begin_query("for jobs that may exist");
        self.system.find(names).await
    }
}
