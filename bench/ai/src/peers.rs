//! Other gateways in pinned versions, from their Python packages: TensorZero's, which its wheel contains, and
//! LiteLLM's proxy. They are installed once, and again after a change of the pins.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::child::Process;
use crate::contest::Contestant;
use crate::load::Target;
use crate::{Args, say, upstream};

/// The limit for the start of a peer.
const PATIENCE: Duration = Duration::from_secs(180);

/// LiteLLM rejects well-known keys.
const KEY: &str = "sk-7f1d0c5a9b3e48a6b2d40e1c8f65a7930b1e2d3c4f5a6978";

/// Installs and starts the selected gateways.
pub(crate) async fn start(args: &Args, folder: &Path, upstream: &str) -> Result<Vec<Contestant>> {
    let mut peers = Vec::new();
    if args.wants("tensorzero") {
        peers.push(tensorzero(args, folder, upstream)?);
    }
    if args.wants("litellm") {
        peers.push(litellm(args, folder, upstream).await?);
    }
    Ok(peers)
}

fn tensorzero(args: &Args, folder: &Path, upstream: &str) -> Result<Contestant> {
    let python = installed(args, "tensorzero")?;
    let model = |name: &str, delay| {
        format!(
            "[models.{name}]\nrouting = [\"up\"]\n[models.{name}.providers.up]\ntype = \"openai\"\n\
             model_name = \"fake-1\"\napi_base = \"{upstream}{}/\"\napi_key_location = \"none\"\n",
            upstream::base(delay)
        )
    };
    let settings = "[gateway]\nobservability.enabled = false\n";
    let config = folder.join("tensorzero.toml");
    fs::write(&config, format!("{settings}{}{}", model("instant", 0), model("slow", 50)))?;
    let mut command = Command::new(python);
    command.arg(peers("serve_tensorzero.py")).arg(config).env("NO_PROXY", "*");
    let process = Arc::new(Process::start(&mut command)?);
    let target = |name: &str| Target {
        url: format!("{}/chat/completions", process.url),
        model: format!("tensorzero::model_name::{name}"),
        token: "none".into(),
    };
    let (instant, slow) = (target("instant"), target("slow"));
    Ok(Contestant {
        name: "tensorzero",
        title: "TensorZero 2026.6.0, no observability",
        process,
        instant,
        slow,
    })
}

async fn litellm(args: &Args, folder: &Path, upstream: &str) -> Result<Contestant> {
    let python = installed(args, "litellm")?;
    let model = |name: &str, delay| {
        let base = upstream::base(delay);
        format!(
            "  - {{model_name: {name}, litellm_params: \
             {{model: openai/fake-1, api_key: x, api_base: \"{upstream}{base}\"}}}}\n"
        )
    };
    let settings = format!(
        "general_settings: {{master_key: {KEY}}}\nlitellm_settings: {{telemetry: false, num_retries: 0}}\n"
    );
    let config = folder.join("litellm.yaml");
    let models = format!("model_list:\n{}{}", model("instant", 0), model("slow", 50));
    fs::write(&config, format!("{models}{settings}"))?;
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    // The gateway does not print its address, so the shell does, and then execs the gateway.
    let script = format!(
        "echo http://127.0.0.1:{port}; exec {} --config {} --host 127.0.0.1 --port {port} \
         --num_workers 1 >&2",
        python.with_file_name("litellm").display(),
        config.display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stderr(Stdio::null());
    command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("LITELLM_LOG", "ERROR");
    command.env("NO_DOCS", "True").env_remove("PYTHONDONTWRITEBYTECODE");
    let process = Arc::new(Process::start(&mut command)?);
    let target = |name: &str| Target {
        url: format!("{}/v1/chat/completions", process.url),
        model: name.into(),
        token: KEY.into(),
    };
    let (instant, slow) = (target("instant"), target("slow"));
    let begun = Instant::now();
    while let Err(error) = instant.load(1, Duration::from_millis(1)).await {
        ensure!(begun.elapsed() < PATIENCE, "LiteLLM does not start: {error:#}");
        say("LiteLLM starts");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(Contestant { name: "litellm", title: "LiteLLM 1.108.4, one worker", process, instant, slow })
}

/// The Python interpreter of a virtual environment with a peer's pinned packages.
fn installed(args: &Args, peer: &str) -> Result<PathBuf> {
    let folder = std::path::absolute(args.dir.join("peers").join(peer))?;
    let mut install = Command::new(peers("install"));
    let output = install.arg(peer).arg(&folder).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{install:?}"))?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{peer} cannot be installed: {}", words.trim());
    Ok(folder.join("bin/python"))
}

fn peers(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(file)
}
