//! What every store and every test of Longshore leans on: one conformance suite, a clock that
//! tests move, wrappers that count or break calls, and a generator of random histories.
//!
//! A store proves itself by one line in its test binary:
//!
//! ```text
//! async fn make_world() -> World { World::new(Arc::new(MyStore::open(clock.clone())), clock) }
//! longshore_testkit::conformance_suite!(make_world);
//! ```

#[cfg(feature = "browser")]
mod browser;
mod clock;
pub mod conformance;
pub mod fairness;
#[cfg(feature = "fake-ai")]
pub mod fake_ai;
mod faulty;
mod faulty_permits;
mod forward;
mod instrumented;
pub mod model;
mod permits_world;
#[cfg(feature = "servers")]
pub mod servers;
pub mod standstill;
#[cfg(feature = "servers")]
pub mod storm;
mod world;

#[cfg(feature = "browser")]
pub use browser::Browser;
pub use clock::ManualClock;
pub use faulty::{Fault, FaultyStore};
pub use faulty_permits::FaultyPermits;
pub use instrumented::{InstrumentedStore, VerbStats};
pub use permits_world::PermitsWorld;
pub use world::{SqlWorld, World};
