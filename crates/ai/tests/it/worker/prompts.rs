use std::fs::File;
use std::path::Path;

use longshore_ai::PromptFiles;
use longshore_ai::contract::{Reply, ReplyBody};
use serde_json::json;

use super::fixture::{WorkerFixture, request};

/// Prompts of acme and evil, and files around them.
fn files() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |place: &str, text: &str| {
        let place = dir.path().join(place);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(place, text).unwrap();
    };
    write("prompts/acme/one.txt", "from a file");
    write("prompts/acme/deep/er/two.txt", "from below");
    write("prompts/evil/theirs.txt", "private");
    write("prompts/acme-too/near.txt", "private");
    write("outside.txt", "private");
    let own = dir.path().join("prompts/acme");
    let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, own.join(name)).unwrap();
    link(&dir.path().join("outside.txt"), "out");
    link(&dir.path().join("prompts/evil"), "there");
    link(&own.join("one.txt"), "inside");
    File::create(own.join("huge")).unwrap().set_len((32 << 20) + 1).unwrap();
    std::fs::write(own.join("binary"), [0xff, 0xfe, 0x00]).unwrap();
    dir
}

/// The reply to a request with this prompt reference.
async fn asked(fixture: &WorkerFixture, place: &str) -> ReplyBody {
    let mut asked = request(place, "parrot", &json!({ "prompt_ref": place }));
    asked.as_object_mut().unwrap().remove("prompt");
    let id = fixture.send("acme", asked.to_string()).await;
    fixture.work().await;
    let result = fixture.unit(id).await.result.expect("an answer");
    Reply::parse(result.as_bytes()).unwrap().body
}

async fn fixture(dir: &tempfile::TempDir) -> WorkerFixture {
    let fixture = WorkerFixture::reading(PromptFiles::new(dir.path().join("prompts")));
    let script = "[[answer]]\nreply = '{{ prompt }}'";
    fixture.setup.scripted("acme", "parrot", script, json!({})).await;
    fixture
}

#[tokio::test(start_paused = true)]
async fn a_prompt_may_be_in_a_file_of_the_tenant() {
    let dir = files();
    let fixture = fixture(&dir).await;
    let places = [
        ("one.txt", "from a file"),
        ("deep/er/two.txt", "from below"),
        ("deep/../one.txt", "from a file"),
        ("inside", "from a file"),
    ];
    for (place, text) in places {
        match asked(&fixture, place).await {
            ReplyBody::Success(success) => assert_eq!(success.response, text, "{place}"),
            other => panic!("{place}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_outside_missing_too_large_or_no_text_is_an_invalid_request() {
    let dir = files();
    let fixture = fixture(&dir).await;
    let outside = dir.path().join("outside.txt").display().to_string();
    let places = [
        "../evil/theirs.txt",
        "../acme-too/near.txt",
        "../../outside.txt",
        &outside,
        "out",
        "there/theirs.txt",
        "none.txt",
        "deep",
        ".",
        "huge",
        "binary",
    ];
    for place in places {
        match asked(&fixture, place).await {
            ReplyBody::Error(failure) => {
                assert_eq!(failure.code.as_str(), "INVALID_REQUEST", "{place}");
                assert!(failure.message.contains("prompt_ref"), "{}", failure.message);
                assert!(!failure.message.contains("private"), "{}", failure.message);
            }
            other => panic!("{place}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_prompts_refuses_references() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "parrot", "[[answer]]\nreply = 'x'", json!({})).await;
    assert!(matches!(asked(&fixture, "one.txt").await, ReplyBody::Error(_)));
}
