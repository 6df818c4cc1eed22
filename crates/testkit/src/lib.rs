//! Shared test tools: a conformance suite for every store, a manual clock, wrappers that count or break
//! calls, random histories that compare two stores, private servers and fake AI providers.
//!
//! A store runs the suite by one line in its test binary:
//!
//! ```text
//! async fn make_fixture() -> StoreFixture { StoreFixture::new(Arc::new(MyStore::open(clock.clone())), clock) }
//! longshore_testkit::conformance_suite!(make_fixture);
//! ```

pub mod blocked_runtime;
#[cfg(feature = "browser")]
mod browser;
#[cfg(feature = "servers")]
pub mod chaos;
mod clock;
pub mod compatibility;
pub mod conformance;
pub mod crash_points;
mod delegate;
pub mod fairness;
#[cfg(feature = "fake-ai")]
pub mod fake_ai;
mod faulty;
mod faulty_permits;
mod fixture;
mod fuzz;
mod instrumented;
pub mod model;
mod permits_fixture;
mod rng;
#[cfg(feature = "servers")]
pub mod servers;
pub mod year;

#[cfg(feature = "browser")]
pub use browser::Browser;
pub use clock::ManualClock;
pub use faulty::{Fault, FaultyStore};
pub use faulty_permits::FaultyPermits;
pub use fixture::{SqlStoreFixture, StoreFixture};
pub use fuzz::fuzz;
pub use instrumented::{InstrumentedStore, MethodStats};
#[cfg(feature = "servers")]
pub use longshore_fault_proxy as fault_proxy;
pub use permits_fixture::PermitsFixture;
pub use rng::Rng;
