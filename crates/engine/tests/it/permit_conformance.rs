//! Runs the permits conformance suite on in-memory permits.

use std::sync::Arc;

use longshore::MemoryPermits;
use longshore_testkit::{ManualClock, PermitsFixture};

async fn memory() -> PermitsFixture {
    let clock = Arc::new(ManualClock::default());
    let permits = Arc::new(MemoryPermits::new(clock.clone()));
    PermitsFixture::new(permits.clone(), permits).with_clock(clock)
}

longshore_testkit::permits_suite!(memory);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bounded_on_several_threads() {
    let permits = Arc::new(MemoryPermits::default());
    let fixture = PermitsFixture::new(permits.clone(), permits);
    longshore_testkit::conformance::run_permits("permits_chaos::bounded", &fixture).await;
}
