//! Mutations of what clients and providers send: a result or an error, never a panic.

use longshore_ai::contract::{Reply, Request, parse_partial};
use longshore_ai::sse::{EventDecoder, Framing};
use longshore_testkit::fuzz;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn fuzz_contract_requests() {
    fuzz(HERE, "contract-request", |bytes| {
        let whole = Request::parse(bytes);
        let partial = parse_partial(bytes);
        drop((whole, partial));
    });
}

#[test]
fn fuzz_contract_replies() {
    fuzz(HERE, "contract-reply", |bytes| drop(Reply::parse(bytes)));
}

#[test]
fn fuzz_event_streams() {
    fuzz(HERE, "events", |bytes| {
        for framing in [Framing::Sse, Framing::Lines] {
            let mut decoder = EventDecoder::new(framing);
            for piece in bytes.chunks(7) {
                decoder.push(piece);
                while decoder.next_event().is_some() {}
                // A byte that is not UTF-8 becomes U+FFFD, which has three.
                assert!(decoder.buffered() <= 3 * bytes.len());
            }
            decoder.last_event();
        }
    });
}
