use std::time::Duration;

use proptest::prelude::*;

use super::decoder::{Decoder, READ_SIZE};
use super::*;

const LIMIT: usize = 256 * 1024;

/// Decodes `bytes`, fed in pieces of these sizes.
fn decode<M: Message>(
    encoding: Encoding,
    bytes: &[u8],
    pieces: &[usize],
) -> Result<Vec<Decoded<M>>, ProtocolError> {
    let mut decoder = Decoder::new(LIMIT);
    decoder.switch(encoding);
    let (mut all, mut rest) = (Vec::new(), bytes);
    let mut sizes = pieces.iter().copied().chain(std::iter::repeat(READ_SIZE));
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(sizes.next().unwrap_or(READ_SIZE).clamp(1, rest.len()));
        decoder.push(piece);
        rest = later;
        while let Some(one) = decoder.next()? {
            all.push(one);
        }
        assert!(decoder.allocated() <= 2 * LIMIT + 4 * READ_SIZE, "held {}", decoder.allocated());
    }
    Ok(all)
}

fn payload() -> impl Strategy<Value = CallPayload> {
    let json = any::<(String, i64, Vec<Option<bool>>)>().prop_map(|it| CallPayload::json(&it).unwrap());
    let bytes = proptest::collection::vec(any::<u8>(), 0..100).prop_map(CallPayload::bytes);
    let large = (any::<u8>(), 0..80_000_usize).prop_map(|(byte, n)| CallPayload::bytes(vec![byte; n]));
    prop_oneof![4 => json, 4 => bytes, 1 => large]
}

fn to_worker() -> impl Strategy<Value = ToWorker> {
    let limit = proptest::option::of(1_u64..1_000_000_000);
    prop_oneof![
        (any::<u64>(), "\\PC{0,20}", limit, any::<bool>(), payload()).prop_map(
            |(id, operation, limit, progress, arguments)| {
                let timeout = limit.map(Duration::from_millis);
                ToWorker::Call(CallMessage { id, operation, timeout, progress, arguments })
            }
        ),
        any::<u64>().prop_map(ToWorker::Cancel),
        any::<u64>().prop_map(ToWorker::Ping),
        Just(ToWorker::Stop),
    ]
}

fn from_worker() -> impl Strategy<Value = FromWorker> {
    let chain = proptest::collection::vec("\\PC{0,9}", 0..3);
    prop_oneof![
        (any::<u64>(), payload()).prop_map(|(id, value)| FromWorker::Result { id, value }),
        (any::<u64>(), payload()).prop_map(|(id, value)| FromWorker::Progress { id, value }),
        (any::<u64>(), "\\PC{0,30}", chain).prop_map(|(id, message, chain)| {
            let data = Some(serde_json::json!({ "code": 7 }));
            FromWorker::Error { id, error: ErrorKind::Handler { message, chain, data } }
        }),
        (any::<u64>(), "\\PC{0,30}")
            .prop_map(|(id, message)| FromWorker::Error { id, error: ErrorKind::BadArguments { message } }),
        any::<u64>().prop_map(FromWorker::Pong),
        Just(FromWorker::Retire),
    ]
}

fn encoding() -> impl Strategy<Value = Encoding> {
    prop_oneof![Just(Encoding::Json), Just(Encoding::Binary)]
}

fn pieces() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(prop_oneof![1..8_usize, 1..READ_SIZE], 0..40)
}

fn messages<M>(decoded: Vec<Decoded<M>>) -> Vec<M> {
    decoded
        .into_iter()
        .filter_map(|one| match one {
            Decoded::Message(message) => Some(message),
            Decoded::Stray(_) => None,
        })
        .collect()
}

proptest! {
    #[test]
    fn what_a_pool_says_comes_out_as_it_went_in_however_it_is_cut(
        sent in proptest::collection::vec(to_worker(), 0..6), encoding in encoding(), cuts in pieces(),
    ) {
        let mut bytes = Vec::new();
        sent.iter().try_for_each(|one| encoding.encode_to_worker(one, &mut bytes)).unwrap();
        prop_assert_eq!(messages(decode::<ToWorker>(encoding, &bytes, &cuts).unwrap()), sent);
    }

    #[test]
    fn what_a_worker_says_comes_out_as_it_went_in_however_it_is_cut(
        sent in proptest::collection::vec(from_worker(), 0..6), encoding in encoding(), cuts in pieces(),
    ) {
        let mut bytes = Vec::new();
        sent.iter().try_for_each(|one| encoding.encode_from_worker(one, &mut bytes)).unwrap();
        prop_assert_eq!(messages(decode::<FromWorker>(encoding, &bytes, &cuts).unwrap()), sent);
    }

    #[test]
    fn garbage_is_a_fault_or_passed_over_and_never_a_panic_or_a_lot_of_memory(
        bytes in proptest::collection::vec(any::<u8>(), 0..5_000), encoding in encoding(), cuts in pieces(),
    ) {
        let _ = decode::<FromWorker>(encoding, &bytes, &cuts);
        let _ = decode::<ToWorker>(encoding, &bytes, &cuts);
    }

    #[test]
    fn a_message_cut_short_is_waited_for(message in from_worker(), encoding in encoding(), cut in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        encoding.encode_from_worker(&message, &mut bytes).unwrap();
        let bytes = &bytes[..cut.index(bytes.len())];
        prop_assert_eq!(decode::<FromWorker>(encoding, bytes, &[]), Ok(Vec::new()));
    }

    #[test]
    fn lines_between_messages_do_no_harm(
        sent in proptest::collection::vec((from_worker(), "[^{\\n]{0,40}"), 1..5), cuts in pieces(),
    ) {
        let mut bytes = Vec::new();
        for (message, print) in &sent {
            bytes.extend_from_slice(print.as_bytes());
            bytes.push(b'\n');
            Encoding::Json.encode_from_worker(message, &mut bytes).unwrap();
        }
        let decoded = messages(decode::<FromWorker>(Encoding::Json, &bytes, &cuts).unwrap());
        prop_assert_eq!(decoded, sent.into_iter().map(|(message, _)| message).collect::<Vec<_>>());
    }
}

#[test]
fn many_small_messages_that_are_cut_anywhere_all_come_out() {
    for encoding in [Encoding::Json, Encoding::Binary] {
        let (mut sent, mut bytes) = (Vec::new(), Vec::new());
        while bytes.len() < 4 * READ_SIZE {
            sent.push(FromWorker::Pong(sent.len() as u64));
            encoding.encode_from_worker(sent.last().unwrap(), &mut bytes).unwrap();
        }
        let cuts = vec![READ_SIZE / 3; 12];
        assert_eq!(messages(decode::<FromWorker>(encoding, &bytes, &cuts).unwrap()), sent);
    }
}

#[test]
fn a_frame_that_claims_too_much_is_refused_before_it_comes() {
    let claim = u32::try_from(LIMIT + 1).unwrap().to_le_bytes();
    let rejected = decode::<FromWorker>(Encoding::Binary, &claim, &[]);
    assert!(rejected.unwrap_err().0.contains("of at most 262144"));
}

#[test]
fn a_large_frame_that_does_not_come_costs_little_memory() {
    let mut decoder = Decoder::<FromWorker>::new(1 << 30);
    decoder.switch(Encoding::Binary);
    let mut header = vec![129, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    header.splice(0..0, (1_u32 << 29).to_le_bytes());
    decoder.push(&header);
    assert_eq!(decoder.next(), Ok(None));
    decoder.space();
    assert!(decoder.allocated() < 4 << 20, "held {}", decoder.allocated());
}

#[test]
fn a_line_without_an_end_is_refused_at_the_limit() {
    let endless = vec![b'x'; 2 * LIMIT];
    let rejected = decode::<FromWorker>(Encoding::Json, &endless, &[]);
    assert_eq!(rejected, Err(ProtocolError("a line of more than 262144 bytes".to_owned())));
}

#[test]
fn a_print_is_stray_and_so_is_an_object_that_is_no_message() {
    let sent = b"hello\n{\"level\":\"info\"}\n[1]\n{\"type\":\"chat\"}\n\n{\"type\":\"retire\"}\n";
    let decoded = decode::<FromWorker>(Encoding::Json, sent, &[]).unwrap();
    let strays = decoded.iter().filter(|one| matches!(one, Decoded::Stray(_))).count();
    assert_eq!((strays, decoded.last()), (4, Some(&Decoded::Message(FromWorker::Retire))));
}

#[test]
fn an_answer_without_an_id_is_a_fault() {
    for line in [&b"{\"type\":\"result\",\"value\":1}\n"[..], b"{\"type\":\"pong\",\"id\":-1}\n"] {
        assert!(decode::<FromWorker>(Encoding::Json, line, &[]).is_err());
    }
}

#[test]
fn unknown_frames_and_fields_are_passed_over() {
    let mut bytes = Vec::new();
    frame::encode_bare(77, 5, &mut bytes).unwrap();
    frame::encode_bare(133, 0, &mut bytes).unwrap();
    let decoded = decode::<FromWorker>(Encoding::Binary, &bytes, &[]).unwrap();
    assert_eq!(messages(decoded), [FromWorker::Retire]);
    let line = br#"{"type":"pong","id":3,"mood":{"good":true}}"#;
    assert_eq!(FromWorker::from_line(line), Ok(Some(FromWorker::Pong(3))));
}

#[test]
fn arguments_cannot_smuggle_anything_into_a_line() {
    let call = |arguments| {
        ToWorker::Call(CallMessage {
            id: 1,
            operation: "look".to_owned(),
            timeout: None,
            progress: false,
            arguments,
        })
    };
    let mut out = Vec::new();
    let smuggler = CallPayload::from_json_text("1,\"operation\":\"delete\"");
    assert!(Encoding::Json.encode_to_worker(&call(smuggler), &mut out).is_err());
    assert_eq!(out, b"", "half a message would spoil the next");
    let pretty = CallPayload::from_json_text("{\n  \"a\": 1\r\n}");
    Encoding::Json.encode_to_worker(&call(pretty), &mut out).unwrap();
    assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
}

#[test]
fn a_ready_may_be_short() {
    let line = br#"{"type":"ready","version":1,"operations":[{"name":"double"}]}"#;
    let Ok(Some(FromWorker::Ready(ready))) = FromWorker::from_line(line) else { panic!("no ready") };
    assert_eq!((ready.encoding, ready.concurrency), (Encoding::Json, 1));
    assert_eq!(ready.operations[0].name, "double");
}

#[test]
fn fuzz_worker_messages() {
    longshore_testkit::fuzz(env!("CARGO_MANIFEST_DIR"), "protocol", |bytes| {
        for encoding in [Encoding::Json, Encoding::Binary] {
            let _ = decode::<FromWorker>(encoding, bytes, &[5]);
            let _ = decode::<ToWorker>(encoding, bytes, &[]);
        }
    });
}
