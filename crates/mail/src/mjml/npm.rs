//! The reference renderer: npm's mjml in persistent Node workers.

use std::path::Path;

use async_trait::async_trait;
use longshore_pool::{
    BASIC_VARIABLES, CallError, ErrorKind, PoolSettings, Program, WhenQueueFull, WorkerPool,
};
use serde::{Deserialize, Serialize};

use super::error::RenderError;
use super::{MjmlTemplate, RenderedPage, Renderer};

/// Renders with npm's mjml. One rendering takes a Node process about 20 ms.
#[derive(Debug, Clone)]
pub struct NpmRenderer {
    pool: WorkerPool,
    name: String,
}

/// The worker program.
const WORKER: &str = include_str!("npm_worker.mjs");

#[derive(Serialize)]
struct RenderRequest<'a> {
    mjml: &'a str,
}

#[derive(Deserialize)]
struct RenderResponse {
    html: String,
    errors: Vec<RenderWarning>,
}

#[derive(Deserialize)]
struct RenderWarning {
    line: usize,
    message: String,
    tag: Option<String>,
}

impl NpmRenderer {
    /// Starts a pool of at most so many workers. `folder` is where `npm install mjml` was run.
    pub async fn start(folder: &Path, workers: usize) -> Result<Self, RenderError> {
        let program = Program::command("node")
            .args(["--input-type=module", "-e", WORKER])
            .inherit_only(BASIC_VARIABLES)
            .env("LONGSHORE_MJML", folder.as_os_str());
        let settings = PoolSettings {
            min: 1.min(workers),
            max: workers,
            // Node's memory grows slowly; the pool replaces one worker while the others continue.
            max_memory: Some(512 << 20),
            when_full: WhenQueueFull::Wait,
            ..PoolSettings::default()
        };
        let pool = WorkerPool::processes("mjml", program, settings).await;
        let pool = pool.map_err(|error| unavailable("npm mjml", &error))?;
        let version = pool.call::<_, String>("version", &()).await;
        let version = version.map_err(|error| unavailable("npm mjml", &error))?;
        Ok(Self { pool, name: format!("npm mjml {version}") })
    }

    /// Stops the workers.
    pub async fn close(&self) {
        self.pool.close(std::time::Duration::from_secs(5)).await;
    }
}

#[async_trait]
impl Renderer for NpmRenderer {
    fn name(&self) -> &str {
        &self.name
    }

    async fn render(&self, template: &MjmlTemplate) -> Result<RenderedPage, RenderError> {
        template.reject_includes()?;
        let response =
            self.pool.call::<_, RenderResponse>("render", &RenderRequest { mjml: template.text() }).await;
        let response = response.map_err(|error| self.render_error(error))?;
        let warnings = response.errors.iter().map(|warning| {
            let tag = warning.tag.as_ref().map_or(String::new(), |tag| format!("<{tag}>: "));
            template.error(warning.line, format!("{tag}{}", warning.message))
        });
        Ok(RenderedPage { warnings: warnings.collect(), html: response.html })
    }
}

impl NpmRenderer {
    fn render_error(&self, error: CallError) -> RenderError {
        match error.kind {
            ErrorKind::Handler { message, .. } => {
                RenderError::Refused { renderer: self.name.clone(), message }
            }
            ErrorKind::Timeout { after, .. } => {
                RenderError::Timeout { renderer: self.name.clone(), limit: after }
            }
            _ => unavailable(&self.name, &error),
        }
    }
}

fn unavailable(name: &str, error: &CallError) -> RenderError {
    RenderError::Unavailable { renderer: name.to_owned(), message: error.to_string() }
}
