//! The content of built messages.

use longshore::Priority;
use longshore_mail::message_builder::{Draft, DraftError};
use longshore_mail::send::FileTransport;
use longshore_mail::spool::{MessageKey, Spool};
use std::sync::Arc;
use tempfile::TempDir;

use super::{letter, now, send};

#[test]
fn a_letter_has_a_text_part_and_the_same_id_whenever_it_is_made() {
    let (one, other) = (letter("a@example.org", "7"), letter("a@example.org", "7"));
    assert_eq!(one.message_id, other.message_id);
    assert_ne!(one.message_id, letter("a@example.org", "8").message_id);
    let body = String::from_utf8(one.body).expect("text");
    assert!(body.contains(&format!("Message-ID: <{}>", one.message_id)), "{body}");
    assert!(body.contains("multipart/alternative") && body.contains("text/plain"), "{body}");
    assert!(body.contains("List-Unsubscribe: <https://example.org/off>"), "{body}");
    assert!(body.is_ascii(), "old servers take it, too: {body}");
    assert_eq!(one.envelope.from.as_deref(), Some("bounces@example.org"));
}

#[test]
fn what_could_smuggle_lines_into_a_head_is_refused() {
    let draft = |to: &str, value: &str| Draft {
        from: "a@example.org".into(),
        to: vec![to.into()],
        subject: "x\r\nBcc: c@example.org".into(),
        html: "x".into(),
        text: None,
        bounces_to: None,
        headers: vec![("X-A".into(), value.into())],
    };
    let seal =
        |draft: Draft| draft.build(MessageKey::new("k").expect("a key"), now(), Priority::NORMAL, now());
    assert!(matches!(seal(draft("b@example.org", "1\r\nBcc: c@example.org")), Err(DraftError::Header(_))));
    assert!(matches!(
        seal(draft("b@example.org\r\nRCPT TO:<c@example.org>", "1")),
        Err(DraftError::Address(_))
    ));
    let body = String::from_utf8(seal(draft("b@example.org", "1")).expect("a letter").body).expect("text");
    assert!(!body.contains("\r\nBcc:"), "{body}");
}

#[tokio::test]
async fn a_folder_has_each_letter_once() {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::open(&folder.path().join("spool")).expect("a spool");
    spool.enqueue(&[letter("a@example.org", "1"), letter("b@example.org", "2")], now()).expect("kept");
    let carrier = Arc::new(FileTransport::new(&folder.path().join("out")).expect("a folder"));
    assert_eq!(send(&spool, carrier).await.sent, 2);
    let names = std::fs::read_dir(folder.path().join("out")).expect("read");
    let names: Vec<_> = names.map(|entry| entry.expect("an entry").path()).collect();
    assert_eq!(names.len(), 2);
    assert!(names.iter().all(|path| path.extension().is_some_and(|end| end == "eml")), "{names:?}");
}
