//! The renderer that defines what is right: npm's mjml, in Node workers that stay.

use std::path::Path;

use async_trait::async_trait;
use longshore_pool::{CallError, ErrorKind, Program, Settings, WhenFull, WorkerPool};
use serde::{Deserialize, Serialize};

use super::error::RenderError;
use super::{Rendered, Renderer, Template};

/// npm's mjml. Slow and sure: one render takes a Node process some 20 ms of work.
#[derive(Debug, Clone)]
pub struct Reference {
    pool: WorkerPool,
    name: String,
}

/// The worker's side of it.
const WORKER: &str = include_str!("reference_worker.mjs");

#[derive(Serialize)]
struct Ask<'a> {
    mjml: &'a str,
}

#[derive(Deserialize)]
struct Answer {
    html: String,
    errors: Vec<Complaint>,
}

#[derive(Deserialize)]
struct Complaint {
    line: usize,
    message: String,
    tag: Option<String>,
}

impl Reference {
    /// Starts workers, at most so many. `folder` is where `npm install mjml` was run.
    pub async fn start(folder: &Path, workers: usize) -> Result<Self, RenderError> {
        let program = Program::command("node")
            .args(["--input-type=module", "-e", WORKER])
            .env("LONGSHORE_MJML", folder.as_os_str());
        let settings = Settings {
            min: 1.min(workers),
            max: workers,
            // Its memory grows slowly; the pool replaces a worker while others work.
            max_memory: Some(512 << 20),
            when_full: WhenFull::Wait,
            ..Settings::default()
        };
        let pool = WorkerPool::processes("mjml", program, settings).await;
        let pool = pool.map_err(|error| unavailable("npm mjml", &error))?;
        let version = pool.call::<_, String>("version", &()).await;
        let version = version.map_err(|error| unavailable("npm mjml", &error))?;
        Ok(Self { pool, name: format!("npm mjml {version}") })
    }

    /// Ends the workers.
    pub async fn close(&self) {
        self.pool.close(std::time::Duration::from_secs(5)).await;
    }
}

#[async_trait]
impl Renderer for Reference {
    fn name(&self) -> &str {
        &self.name
    }

    async fn render(&self, template: &Template) -> Result<Rendered, RenderError> {
        template.includes_nothing()?;
        let answer = self.pool.call::<_, Answer>("render", &Ask { mjml: template.text() }).await;
        let answer = answer.map_err(|error| self.told(error))?;
        let warnings = answer.errors.iter().map(|complaint| {
            let tag = complaint.tag.as_ref().map_or(String::new(), |tag| format!("<{tag}>: "));
            template.fault(complaint.line, format!("{tag}{}", complaint.message))
        });
        Ok(Rendered { warnings: warnings.collect(), html: answer.html })
    }
}

impl Reference {
    fn told(&self, error: CallError) -> RenderError {
        match error.kind {
            ErrorKind::Handler { message, .. } => {
                RenderError::Refused { renderer: self.name.clone(), message }
            }
            ErrorKind::Timeout { after, .. } => {
                RenderError::Late { renderer: self.name.clone(), limit: after }
            }
            _ => unavailable(&self.name, &error),
        }
    }
}

fn unavailable(name: &str, error: &CallError) -> RenderError {
    RenderError::Unavailable { renderer: name.to_owned(), message: error.to_string() }
}
