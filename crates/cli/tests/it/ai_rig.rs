//! A test directory with a fake provider, a key, and a profile `fake` that calls the provider.

use longshore_testkit::fake_ai::{FakeAi, Seen};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::support::{Place, Running, SOON, eventually};

/// A test directory and the fake provider that its profile calls.
pub struct Port {
    pub place: Place,
    pub fake: FakeAi,
    _runtime: Runtime,
}

impl Port {
    /// Stores this key in the vault and adds the profile.
    pub fn new(secret: &str) -> Self {
        let port = Self::bare(Place::new());
        let place = &port.place;
        place.run(&["key", "init"]).ok();
        place.run_with(&["key", "add", "k"], secret).ok();
        let add = ["profile", "add", "fake", "--provider", "openai", "--model", "m"];
        let more = ["--key", "k", "--endpoint", &port.fake.url(), "--price-input", "1"];
        place.run(&[&add[..], &more, &["--price-output", "1"]].concat()).ok();
        port
    }

    /// Adds neither key nor profile.
    pub fn bare(place: Place) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let fake = runtime.block_on(FakeAi::start()).unwrap();
        Self { place, fake, _runtime: runtime }
    }

    /// Starts a worker with a session TTL of two seconds.
    pub fn worker(&self, more: &[&str]) -> Running {
        self.place.start(&[&["ai", "worker", "--ttl", "2s"], more].concat())
    }

    /// Waits until the fake provider has received this many requests.
    pub fn asked(&self, times: usize) -> Vec<Seen> {
        eventually(SOON, || {
            let seen = self.fake.seen();
            (seen.len() >= times).then_some(seen)
        })
    }

    /// The usage total over all calls.
    pub fn usage(&self) -> Value {
        self.place.run(&["usage", "--json"]).ok().json()["total"].clone()
    }
}
