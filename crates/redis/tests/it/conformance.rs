//! Every case of the suite, each on a server of its own.

use std::sync::Arc;

use longshore_testkit::PermitsWorld;
use longshore_testkit::servers::Remembers;

use crate::kit::{open, server};

async fn redis() -> PermitsWorld {
    // A young server that may have forgotten something would give nothing at first.
    let server = server(Remembers::EverySecond).await;
    let (permits, other) = (open(&server.url()), open(&server.url()));
    PermitsWorld::new(Arc::new(permits), Arc::new(other)).keeping(server)
}

longshore_testkit::permits_suite!(redis);
