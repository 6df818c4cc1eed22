use std::time::Duration;

use proptest::prelude::*;

use super::decoder::{Decoder, READ};
use super::*;

const LIMIT: usize = 256 * 1024;

/// Decodes `bytes`, fed in pieces of these sizes.
fn heard<M: Message>(
    encoding: Encoding,
    bytes: &[u8],
    pieces: &[usize],
) -> Result<Vec<Heard<M>>, Fault> {
    let mut decoder = Decoder::new(LIMIT);
    decoder.switch(encoding);
    let (mut all, mut rest) = (Vec::new(), bytes);
    let mut sizes = pieces.iter().copied().chain(std::iter::repeat(READ));
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(sizes.next().unwrap_or(READ).clamp(1, rest.len()));
        decoder.push(piece);
        rest = later;
        while let Some(one) = decoder.next()? {
            all.push(one);
        }
        assert!(decoder.held() <= 2 * LIMIT + 4 * READ, "held {}", decoder.held());
    }
    Ok(all)
}

fn payload() -> impl Strategy<Value = Payload> {
    let json = any::<(String, i64, Vec<Option<bool>>)>().prop_map(|it| Payload::json(&it).unwrap());
    let bytes = proptest::collection::vec(any::<u8>(), 0..100).prop_map(Payload::bytes);
    let large = (any::<u8>(), 0..80_000_usize).prop_map(|(byte, n)| Payload::bytes(vec![byte; n]));
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
        (any::<u64>(), "\\PC{0,30}").prop_map(|(id, message)| FromWorker::Error {
            id,
            error: ErrorKind::BadArguments { message }
        }),
        any::<u64>().prop_map(FromWorker::Pong),
        Just(FromWorker::Retire),
    ]
}

fn encoding() -> impl Strategy<Value = Encoding> {
    prop_oneof![Just(Encoding::Json), Just(Encoding::Binary)]
}

fn pieces() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(prop_oneof![1..8_usize, 1..READ], 0..40)
}

fn messages<M>(heard: Vec<Heard<M>>) -> Vec<M> {
    heard
        .into_iter()
        .filter_map(|one| match one {
            Heard::Message(message) => Some(message),
            Heard::Stray(_) => None,
        })
        .collect()
}

proptest! {
    #[test]
    fn what_a_pool_says_comes_out_as_it_went_in_however_it_is_cut(
        said in proptest::collection::vec(to_worker(), 0..6), encoding in encoding(), cuts in pieces(),
    ) {
        let mut bytes = Vec::new();
        said.iter().try_for_each(|one| encoding.tell(one, &mut bytes)).unwrap();
        prop_assert_eq!(messages(heard::<ToWorker>(encoding, &bytes, &cuts).unwrap()), said);
    }

    #[test]
    fn what_a_worker_says_comes_out_as_it_went_in_however_it_is_cut(
        said in proptest::collection::vec(from_worker(), 0..6), encoding in encoding(), cuts in pieces(),
    ) {
        let mut bytes = Vec::new();
        said.iter().try_for_each(|one| encoding.answer(one, &mut bytes)).unwrap();
        prop_assert_eq!(messages(heard::<FromWorker>(encoding, &bytes, &cuts).unwrap()), said);
    }

    #[test]
    fn garbage_is_a_fault_or_passed_over_and_never_a_panic_or_a_lot_of_memory(
        bytes in proptest::collection::vec(any::<u8>(), 0..5_000), encoding in encoding(), cuts in pieces(),
    ) {
        let _ = heard::<FromWorker>(encoding, &bytes, &cuts);
        let _ = heard::<ToWorker>(encoding, &bytes, &cuts);
    }

    #[test]
    fn a_message_cut_short_is_waited_for(message in from_worker(), encoding in encoding(), cut in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        encoding.answer(&message, &mut bytes).unwrap();
        let bytes = &bytes[..cut.index(bytes.len())];
        prop_assert_eq!(heard::<FromWorker>(encoding, bytes, &[]), Ok(Vec::new()));
    }

    #[test]
    fn lines_between_messages_do_no_harm(
        said in proptest::collection::vec((from_worker(), "[^{\\n]{0,40}"), 1..5), cuts in pieces(),
    ) {
        let mut bytes = Vec::new();
        for (message, print) in &said {
            bytes.extend_from_slice(print.as_bytes());
            bytes.push(b'\n');
            Encoding::Json.answer(message, &mut bytes).unwrap();
        }
        let heard = messages(heard::<FromWorker>(Encoding::Json, &bytes, &cuts).unwrap());
        prop_assert_eq!(heard, said.into_iter().map(|(message, _)| message).collect::<Vec<_>>());
    }
}

#[test]
fn many_small_messages_that_are_cut_anywhere_all_come_out() {
    for encoding in [Encoding::Json, Encoding::Binary] {
        let (mut said, mut bytes) = (Vec::new(), Vec::new());
        while bytes.len() < 4 * READ {
            said.push(FromWorker::Pong(said.len() as u64));
            encoding.answer(said.last().unwrap(), &mut bytes).unwrap();
        }
        let cuts = vec![READ / 3; 12];
        assert_eq!(messages(heard::<FromWorker>(encoding, &bytes, &cuts).unwrap()), said);
    }
}

#[test]
fn a_frame_that_claims_too_much_is_refused_before_it_comes() {
    let claim = u32::try_from(LIMIT + 1).unwrap().to_le_bytes();
    let refused = heard::<FromWorker>(Encoding::Binary, &claim, &[]);
    assert!(refused.unwrap_err().0.contains("of at most 262144"));
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
    assert!(decoder.held() < 4 << 20, "held {}", decoder.held());
}

#[test]
fn a_line_without_an_end_is_refused_at_the_limit() {
    let endless = vec![b'x'; 2 * LIMIT];
    let refused = heard::<FromWorker>(Encoding::Json, &endless, &[]);
    assert_eq!(refused, Err(Fault("a line of more than 262144 bytes".to_owned())));
}

#[test]
fn a_print_is_stray_and_so_is_an_object_that_is_no_message() {
    let said = b"hello\n{\"level\":\"info\"}\n[1]\n{\"type\":\"chat\"}\n\n{\"type\":\"retire\"}\n";
    let heard = heard::<FromWorker>(Encoding::Json, said, &[]).unwrap();
    let strays = heard.iter().filter(|one| matches!(one, Heard::Stray(_))).count();
    assert_eq!((strays, heard.last()), (4, Some(&Heard::Message(FromWorker::Retire))));
}

#[test]
fn an_answer_without_an_id_is_a_fault() {
    for line in [&b"{\"type\":\"result\",\"value\":1}\n"[..], b"{\"type\":\"pong\",\"id\":-1}\n"] {
        assert!(heard::<FromWorker>(Encoding::Json, line, &[]).is_err());
    }
}

#[test]
fn unknown_frames_and_fields_are_passed_over() {
    let mut bytes = Vec::new();
    frame::bare(77, 5, &mut bytes).unwrap();
    frame::bare(133, 0, &mut bytes).unwrap();
    let heard = heard::<FromWorker>(Encoding::Binary, &bytes, &[]).unwrap();
    assert_eq!(messages(heard), [FromWorker::Retire]);
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
    let smuggler = Payload::from_json_text("1,\"operation\":\"delete\"");
    assert!(Encoding::Json.tell(&call(smuggler), &mut out).is_err());
    assert_eq!(out, b"", "half a message would spoil the next");
    let pretty = Payload::from_json_text("{\n  \"a\": 1\r\n}");
    Encoding::Json.tell(&call(pretty), &mut out).unwrap();
    assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
}

#[test]
fn a_ready_may_be_short() {
    let line = br#"{"type":"ready","version":1,"operations":[{"name":"double"}]}"#;
    let Ok(Some(FromWorker::Ready(ready))) = FromWorker::from_line(line) else {
        panic!("no ready")
    };
    assert_eq!((ready.encoding, ready.concurrency), (Encoding::Json, 1));
    assert_eq!(ready.operations[0].name, "double");
}
