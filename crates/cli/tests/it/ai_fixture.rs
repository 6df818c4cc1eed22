//! A test directory with a fake provider, a key, and a profile `fake` that calls the provider.

use longshore_testkit::fake_ai::{FakeAi, RecordedRequest};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::support::{ChildGuard, TIMEOUT, TestDir, eventually};

/// A test directory and the fake provider that its profile calls.
pub struct AiFixture {
    pub dir: TestDir,
    pub fake: FakeAi,
    _runtime: Runtime,
}

impl AiFixture {
    /// Stores this key in the vault and adds the profile.
    pub fn new(secret: &str) -> Self {
        let fixture = Self::bare(TestDir::new());
        let dir = &fixture.dir;
        dir.run(&["key", "init"]).ok();
        dir.run_with(&["key", "add", "k"], secret).ok();
        let add = ["profile", "add", "fake", "--provider", "openai", "--model", "m"];
        let more = ["--key", "k", "--endpoint", &fixture.fake.url(), "--price-input", "1"];
        dir.run(&[&add[..], &more, &["--price-output", "1"]].concat()).ok();
        fixture
    }

    /// Adds neither key nor profile.
    pub fn bare(dir: TestDir) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let fake = runtime.block_on(FakeAi::start()).unwrap();
        Self { dir, fake, _runtime: runtime }
    }

    /// Starts a worker with a session TTL of two seconds.
    pub fn worker(&self, more: &[&str]) -> ChildGuard {
        self.dir.start(&[&["ai", "worker", "--ttl", "2s"], more].concat())
    }

    /// Waits until the fake provider has received this many requests.
    pub fn wait_for_requests(&self, times: usize) -> Vec<RecordedRequest> {
        eventually(TIMEOUT, || {
            let seen = self.fake.requests();
            (seen.len() >= times).then_some(seen)
        })
    }

    /// The usage total over all calls.
    pub fn usage(&self) -> Value {
        self.dir.run(&["usage", "--json"]).ok().json()["total"].clone()
    }
}
