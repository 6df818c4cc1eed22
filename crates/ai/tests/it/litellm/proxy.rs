//! A LiteLLM proxy on loopback, in front of the fake.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use longshore_ai::{Http, Profile, Provider, ProviderName, providers};
use longshore_testkit::fake_ai::FakeAi;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// Its start is slow, more so on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(240);

/// The proxy and the fake behind it. Both stop when this is dropped.
pub(super) struct Proxy {
    pub(super) fake: FakeAi,
    url: String,
    key: String,
    process: Child,
    _folder: TempDir,
}

/// The API of OpenAI to which it translates Anthropic's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Translates {
    /// Chat completions, if configured.
    ToChat,
    /// Responses, by default.
    ToResponses,
}

impl Proxy {
    /// Starts it, and waits until it answers.
    pub(super) async fn start(translates: Translates) -> Self {
        let program = std::env::var_os("LONGSHORE_LITELLM").expect("where `litellm` is");
        let (fake, folder) = (FakeAi::start().await.unwrap(), tempfile::tempdir().unwrap());
        let config = folder.path().join("litellm.yaml");
        std::fs::write(&config, settings(&fake.url(), translates)).unwrap();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        // It rejects well-known keys. This one lives as long as the proxy.
        let key = format!("sk-{}{}", longshore::UnitId::new(), longshore::UnitId::new());
        let mut command = Command::new(program);
        command.arg("--config").arg(config).args(["--host", "127.0.0.1", "--num_workers", "1"]);
        command.args(["--port", &port.to_string()]).current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("LITELLM_MASTER_KEY", &key).env("LITELLM_LOG", "ERROR");
        command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("NO_DOCS", "True");
        command.env("NO_PROXY", "*").env_remove("PYTHONDONTWRITEBYTECODE");
        let url = format!("http://127.0.0.1:{port}");
        let mut proxy = Self { fake, url, key, process: command.spawn().unwrap(), _folder: folder };
        proxy.answers().await;
        proxy
    }

    async fn answers(&mut self) {
        let (provider, started) = (self.provider(ProviderName::Openai, "plain"), Instant::now());
        while let Err(error) = provider.health(Instant::now() + Duration::from_secs(5)).await {
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none(), "LiteLLM ended with {ended:?}");
            assert!(started.elapsed() < START_TIMEOUT, "LiteLLM does not start: {error}");
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// One of our providers, asking the proxy for one of its models.
    pub(super) fn provider(&self, wire: ProviderName, model: &str) -> Arc<dyn Provider> {
        self.provider_with(wire, model, &self.key)
    }

    /// A provider with another key.
    pub(super) fn provider_with(&self, wire: ProviderName, model: &str, key: &str) -> Arc<dyn Provider> {
        let endpoint = Some(self.url.clone());
        let profile = Profile { endpoint, model: model.into(), ..Profile::new("p", wire) };
        providers::open(&profile, Some(key.into()), &Http::new()).unwrap()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Two models behind it: one with OpenAI's API, one with Anthropic's.
fn settings(fake: &str, translates: Translates) -> String {
    let to_chat = translates == Translates::ToChat;
    format!(
        "model_list:
  - model_name: plain
    litellm_params: {{model: openai/gpt-4o, api_key: upstream, api_base: \"{fake}/v1\"}}
  - model_name: claude
    litellm_params: {{model: anthropic/claude-sonnet-4-5, api_key: upstream, api_base: \"{fake}\"}}
general_settings: {{master_key: os.environ/LITELLM_MASTER_KEY}}
litellm_settings:
  telemetry: false
  num_retries: 0
  use_chat_completions_url_for_anthropic_messages: {to_chat}
router_settings: {{num_retries: 0, disable_cooldowns: true}}
"
    )
}
