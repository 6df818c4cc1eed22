//! The dashboard's access to dispatch: queries the pool of the configured folder through its
//! client.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use longshore_dispatch::access::AccessError;
use longshore_dispatch::client::{ClientError, DispatchClient};
use longshore_dispatch::connection::ConnectError;
use longshore_dispatch::launch::DEFAULT_ALLOCATION;
use longshore_dispatch::launch::scaler::DEFAULT_DRAIN;
use longshore_dispatch::request::{
    AllocationAction, AllocationChange, ClientRequest, PoolStatus, ServerReply, WorkerStatus,
};
use longshore_web::{ScriptNode, ScriptPool, ScriptPoolStatus, ScriptPools};

/// Timeout of a query, after which the page shows an error.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

/// The pool in a folder, if there is one.
pub struct DispatchFolder(pub PathBuf);

impl DispatchFolder {
    /// The pool's name: its folder.
    fn name(&self) -> String {
        self.0.file_name().map_or("dispatch".into(), |name| name.to_string_lossy().into_owned())
    }

    async fn ask(&self, request: &ClientRequest) -> Result<ServerReply, ClientError> {
        let asking = async { DispatchClient::connect(&self.0).await?.request(request).await };
        let answered = tokio::time::timeout(QUERY_TIMEOUT, asking).await;
        let late = || std::io::Error::new(std::io::ErrorKind::TimedOut, "it does not answer");
        answered.unwrap_or_else(|_| Err(late().into()))
    }
}

#[async_trait]
impl ScriptPools for DispatchFolder {
    async fn list(&self) -> Vec<ScriptPool> {
        let pool = self.name();
        let (status, trouble) = match self.ask(&ClientRequest::Status).await {
            Ok(ServerReply::Status(status)) => (Some(shown(*status)), None),
            Ok(_) => (None, Some("the server sent an unexpected reply".to_owned())),
            // A pool that was never started is not shown.
            Err(ClientError::Connect(ConnectError::Access(AccessError::Missing(_)))) => {
                return Vec::new();
            }
            Err(error) => (None, Some(error.to_string())),
        };
        vec![ScriptPool { pool, status, trouble }]
    }

    async fn scale(&self, _: &str, min: u32, max: u32) -> Result<(), String> {
        let action = AllocationAction::Resize { min, max, drain: DEFAULT_DRAIN };
        let change = AllocationChange { name: DEFAULT_ALLOCATION.to_owned(), action };
        let scaled = self.ask(&ClientRequest::ChangeAllocation(change)).await;
        scaled.map(drop).map_err(|error| error.to_string())
    }
}

fn shown(status: PoolStatus) -> ScriptPoolStatus {
    let (min, max) = status.size;
    ScriptPoolStatus {
        mood: status.state,
        base: status.base,
        min,
        max,
        waiting: status.ready + status.claimed.saturating_sub(status.running),
        later: status.not_ready,
        running: status.running,
        done: status.done,
        failed: status.failed,
        nodes: status.workers.into_iter().map(node).collect(),
        up_seconds: status.up.as_secs_f64(),
    }
}

fn node(worker: WorkerStatus) -> ScriptNode {
    ScriptNode {
        id: worker.uid,
        host: worker.host,
        pid: worker.pid,
        mood: worker.mood,
        threads: worker.threads,
        taken: worker.load,
        scripts: worker.tasks,
        load: worker.average,
    }
}
