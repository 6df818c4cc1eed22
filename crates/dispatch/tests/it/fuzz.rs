//! Mutations of frames that a peer sends: a message or an error, never a panic.

use longshore_dispatch::wire::frame::{FrameReader, decode, decode_json, encode, encode_json};
use longshore_dispatch::wire::{FromWorker, Hello, ToWorker, Welcome};
use longshore_testkit::fuzz;

const HERE: &str = env!("CARGO_MANIFEST_DIR");
const LIMIT: usize = 64 * 1024;

#[test]
fn fuzz_dispatch_messages() {
    fuzz(HERE, "message", |bytes| {
        if let Ok(message) = decode::<FromWorker>(bytes) {
            encode(&message, &mut Vec::new()).unwrap();
        }
        if let Ok(message) = decode::<ToWorker>(bytes) {
            encode(&message, &mut Vec::new()).unwrap();
        }
        if let Ok(message) = decode_json::<Hello>(bytes) {
            encode_json(&message, &mut Vec::new()).unwrap();
        }
        drop(decode_json::<Welcome>(bytes));
    });
}

#[test]
fn fuzz_dispatch_frames() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    fuzz(HERE, "frame", |bytes| {
        runtime.block_on(async {
            let mut reader = FrameReader::new(bytes, LIMIT);
            while let Ok(Some(frame)) = reader.next().await {
                assert!(frame.len() <= LIMIT);
            }
        });
    });
}
