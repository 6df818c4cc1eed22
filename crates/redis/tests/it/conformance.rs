//! Runs every case of the conformance suite, each on its own server.

use longshore_testkit::PermitsFixture;
use longshore_testkit::servers::RedisPersistence;

use crate::helpers::{open, server};

async fn redis() -> PermitsFixture {
    // A server without an append-only file would grant nothing shortly after its start.
    let server = server(RedisPersistence::EverySecond).await;
    let (permits, other) = (open(&server.url()), open(&server.url()));
    PermitsFixture::new(permits, other).keeping(server)
}

longshore_testkit::permits_suite!(redis);
