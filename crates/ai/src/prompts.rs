//! Prompts by reference: requests that name a stored prompt.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use longshore::TenantId;
use tokio::time::{Instant, timeout_at};

use crate::model_api::{AskError, Code};

/// A store of prompts.
#[async_trait]
pub trait Prompts: Send + Sync + 'static {
    /// The prompt that a tenant's request refers to.
    async fn fetch(&self, tenant: &TenantId, reference: &str, until: Instant) -> Result<String, AskError>;
}

/// No store: every reference is rejected.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPrompts;

#[async_trait]
impl Prompts for NoPrompts {
    async fn fetch(&self, _: &TenantId, _: &str, _: Instant) -> Result<String, AskError> {
        let why = "prompt_ref: this worker has no prompt store";
        Err(AskError::new(Code::InvalidRequest, why))
    }
}

/// Files below a folder: `ROOT/<tenant>/<reference>`, and never outside of the tenant's folder.
#[derive(Debug, Clone)]
pub struct PromptFiles {
    root: PathBuf,
}

/// Longest prompt, in bytes.
const MAX_PROMPT_BYTES: u64 = 32 << 20;

impl PromptFiles {
    /// Files below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The file's canonical path, if it is inside of the tenant's folder.
    fn path(&self, tenant: &TenantId, reference: &str) -> std::io::Result<Option<PathBuf>> {
        // These would be the root itself, or its parent.
        if [".", ".."].contains(&tenant.as_str()) {
            return Ok(None);
        }
        let own = self.root.join(tenant.as_str()).canonicalize()?;
        let real = own.join(Path::new(reference)).canonicalize()?;
        Ok(real.starts_with(&own).then_some(real).filter(|real| real.is_file()))
    }
}

#[async_trait]
impl Prompts for PromptFiles {
    async fn fetch(&self, tenant: &TenantId, reference: &str, until: Instant) -> Result<String, AskError> {
        let unknown =
            |why: &str| AskError::new(Code::InvalidRequest, format!("prompt_ref `{reference}`: {why}"));
        let (files, tenant, name) = (self.clone(), tenant.clone(), reference.to_owned());
        let reading = tokio::task::spawn_blocking(move || {
            let Some(path) = files.path(&tenant, &name)? else { return Ok(None) };
            if path.metadata()?.len() > MAX_PROMPT_BYTES {
                return Err(std::io::Error::other("it is too large"));
            }
            std::fs::read_to_string(path).map(Some)
        });
        let read = timeout_at(until, reading).await;
        let read = read.map_err(|_| AskError::new(Code::Timeout, "the prompt was not read in time"))?;
        match read {
            Ok(Ok(Some(prompt))) if prompt.is_empty() => Err(unknown("it is empty")),
            Ok(Ok(Some(prompt))) => Ok(prompt),
            Ok(Ok(None)) => Err(unknown("there is no such prompt")),
            Ok(Err(error)) if is_missing(&error) => Err(unknown("there is no such prompt")),
            Ok(Err(error)) => Err(unknown(&error.to_string())),
            Err(error) => Err(AskError::new(Code::Internal, error.to_string())),
        }
    }
}

/// Whether the path does not exist.
fn is_missing(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidInput, NotADirectory, NotFound};
    [NotFound, NotADirectory, InvalidInput].contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Names of tenants may contain dots.
    #[tokio::test]
    async fn a_tenant_that_is_called_like_a_folder_above_has_no_prompts() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("prompts/acme")).unwrap();
        std::fs::write(dir.path().join("prompts/acme/one"), "private").unwrap();
        let files = PromptFiles::new(dir.path().join("prompts"));
        let until = Instant::now() + Duration::from_secs(30);
        for (tenant, reference) in [(".", "acme/one"), ("..", "prompts/acme/one")] {
            let tenant = TenantId::new(tenant).unwrap();
            let error = files.fetch(&tenant, reference, until).await.unwrap_err();
            assert_eq!(error.code, Code::InvalidRequest);
            assert!(error.message.ends_with("there is no such prompt"), "{error}");
        }
        let own = files.fetch(&TenantId::new("acme").unwrap(), "one", until).await;
        assert_eq!(own.unwrap(), "private");
    }
}
