//! Mutations of requests to the gateway: each is answered, or rejected as the client's mistake.

use longshore_testkit::fuzz;

use super::arbitrary_requests::{is_answered_or_refused, wait_for};
use super::{ANTHROPIC, OPENAI};

#[test]
fn fuzz_gateway_bodies() {
    fuzz(env!("CARGO_MANIFEST_DIR"), "gateway", |bytes| {
        wait_for(async {
            is_answered_or_refused(OPENAI, bytes.to_vec()).await;
            is_answered_or_refused(ANTHROPIC, bytes.to_vec()).await;
        });
    });
}
