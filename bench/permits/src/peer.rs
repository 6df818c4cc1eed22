//! npm's redis-semaphore, in a Node process.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;

use crate::figures::Figures;
use crate::run::{Contestant, Load};

/// The installed peer.
pub(crate) struct Semaphore {
    folder: PathBuf,
    url: String,
}

impl Semaphore {
    /// Installs the pinned versions into a cache folder outside the repository, unless installed.
    pub(crate) fn install(url: &str, cache: Option<&Path>) -> Result<Self> {
        let home = std::env::var_os("HOME").unwrap_or_default();
        let usual = Path::new(&home).join(".cache/longshore-peers");
        let folder = cache.unwrap_or(&usual).join("permits-node");
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        std::fs::create_dir_all(&folder)?;
        for file in ["package.json", "semaphore.cjs"] {
            std::fs::copy(peers.join(file), folder.join(file))?;
        }
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-save", "--no-fund", "--no-audit", "--silent"]);
        let status = npm.current_dir(&folder).status().context("npm is missing")?;
        ensure!(status.success(), "npm install: {status}");
        Ok(Self { folder, url: url.to_owned() })
    }
}

#[async_trait]
impl Contestant for Semaphore {
    fn name(&self) -> &'static str {
        "redis-semaphore"
    }

    async fn run(&self, load: &Load, seconds: f64) -> Result<Figures> {
        let mut node = tokio::process::Command::new("node");
        node.arg("semaphore.cjs").current_dir(&self.folder).env("REDIS_URL", &self.url);
        node.args([load.tasks.to_string(), load.permits.to_string(), seconds.to_string()]);
        let output = node.output().await.context("node is missing")?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "redis-semaphore: {told}");
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}
