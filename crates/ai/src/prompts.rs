//! Prompts by reference: requests that say where the prompt is.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use longshore::TenantId;
use tokio::time::{Instant, timeout_at};

use crate::ask::{AskError, Code};

/// Somewhere prompts are kept.
#[async_trait]
pub trait Prompts: Send + Sync + 'static {
    /// The prompt that a tenant's request refers to.
    async fn fetch(
        &self,
        tenant: &TenantId,
        reference: &str,
        until: Instant,
    ) -> Result<String, AskError>;
}

/// Nowhere: every reference is refused.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPrompts;

#[async_trait]
impl Prompts for NoPrompts {
    async fn fetch(&self, _: &TenantId, _: &str, _: Instant) -> Result<String, AskError> {
        let why = "prompt_ref: this worker was not told where prompts are kept";
        Err(AskError::new(Code::InvalidRequest, why))
    }
}

/// Files below a folder: `ROOT/<tenant>/<reference>`, and never outside of the tenant's part of it.
#[derive(Debug, Clone)]
pub struct PromptFiles {
    root: PathBuf,
}

/// The longest prompt that is read.
const MOST: u64 = 32 << 20;

impl PromptFiles {
    /// Files below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The file's real path, if it is inside of the tenant's folder.
    fn place(&self, tenant: &TenantId, reference: &str) -> std::io::Result<Option<PathBuf>> {
        let own = self.root.join(tenant.as_str()).canonicalize()?;
        let real = own.join(Path::new(reference)).canonicalize()?;
        Ok(real.starts_with(&own).then_some(real).filter(|real| real.is_file()))
    }
}

#[async_trait]
impl Prompts for PromptFiles {
    async fn fetch(
        &self,
        tenant: &TenantId,
        reference: &str,
        until: Instant,
    ) -> Result<String, AskError> {
        let unknown = |why: &str| {
            AskError::new(Code::InvalidRequest, format!("prompt_ref `{reference}`: {why}"))
        };
        let (files, tenant, name) = (self.clone(), tenant.clone(), reference.to_owned());
        let reading = tokio::task::spawn_blocking(move || {
            let Some(place) = files.place(&tenant, &name)? else { return Ok(None) };
            if place.metadata()?.len() > MOST {
                return Err(std::io::Error::other("it is too large"));
            }
            std::fs::read_to_string(place).map(Some)
        });
        let read = timeout_at(until, reading).await;
        let read =
            read.map_err(|_| AskError::new(Code::Timeout, "the prompt was not read in time"))?;
        match read {
            Ok(Ok(Some(prompt))) => Ok(prompt),
            Ok(Ok(None)) => Err(unknown("there is no such prompt")),
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(unknown("there is no such prompt"))
            }
            Ok(Err(error)) => Err(unknown(&error.to_string())),
            Err(error) => Err(AskError::new(Code::Internal, error.to_string())),
        }
    }
}
