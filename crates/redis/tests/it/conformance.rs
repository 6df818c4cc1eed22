//! Runs every case of the conformance suite, each on its own server.

use longshore_testkit::PermitsWorld;
use longshore_testkit::servers::Remembers;

use crate::helpers::{open, server};

async fn redis() -> PermitsWorld {
    // A server without an append-only file would grant nothing shortly after its start.
    let server = server(Remembers::EverySecond).await;
    let (permits, other) = (open(&server.url()), open(&server.url()));
    PermitsWorld::new(permits, other).keeping(server)
}

longshore_testkit::permits_suite!(redis);
