//! Folders without a pool, or with another user's pool: each error says what to do.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::fixture::PoolFixture;
use super::launcher::LocalLauncher;
use crate::support::TestDir;

const START_ARGS: [&str; 6] = ["dispatch", "start", "--nthr", "1", "--wait-limit", "30s"];

#[test]
fn a_folder_that_cannot_be_written_to_is_told() {
    let dir = TestDir::new();
    dir.write("file", "");
    // The test may run as root, which no permission stops.
    for (folder, words) in [("file", "file"), ("file/pool", "file/pool"), ("/sys/p", "/sys/p")] {
        let run = dir.run(&[&START_ARGS[..], &["--dir", folder]].concat()).ends(1);
        run.says("error: cannot").says(words).says("hint: `--dir` names a folder");
    }
}

#[test]
fn an_access_file_that_others_may_read_is_neither_used_nor_replaced() {
    let pool = PoolFixture::start(&["--nthr", "1"]);
    let file = pool.dir.path("pool/access.json");
    let set = |mode| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set(0o644);
    let before = std::fs::read(&file).unwrap();
    for command in ["start", "status", "stop"] {
        pool.run(&["dispatch", command])
            .ends(1)
            .says("its mode is 0644")
            .says("hint: any process that has read");
    }
    assert_eq!(std::fs::read(&file).unwrap(), before);
    set(0o600);
    pool.stop();
}

/// The access file of an earlier server, or of a server on another machine.
#[test]
fn a_stale_access_file_is_told_and_a_new_server_takes_its_place() {
    let pool = PoolFixture::prepare(Box::new(LocalLauncher), &["--nthr", "1"]);
    pool.start_server().ok();
    let file = pool.dir.path("pool/access.json");
    let left = std::fs::read(&file).unwrap();
    pool.stop();
    let write = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    write(&left);
    pool.run(&["dispatch", "status"]).ends(1).says("cannot be reached").says("dispatch start");
    // No machine has this address: it is from the network reserved for examples.
    let mut moved: Value = serde_json::from_slice(&left).unwrap();
    moved["addresses"] = serde_json::json!(["192.0.2.1:4711"]);
    write(&serde_json::to_vec(&moved).unwrap());
    pool.start_server().ok();
    assert_ne!(std::fs::read(&file).unwrap(), serde_json::to_vec(&moved).unwrap());
    pool.stop();
    for nonsense in [&b"{}"[..], b"", b"\xff\xfe"] {
        write(nonsense);
        pool.run(&["dispatch", "status"]).ends(1).says("access.json").says("hint:");
    }
    pool.start_server().ok();
    pool.stop();
}

#[test]
fn whoever_knows_another_secret_or_expects_another_server_is_told_so() {
    let (ours, other) = (PoolFixture::start(&["--nthr", "1"]), PoolFixture::start(&["--nthr", "1"]));
    let read =
        |pool: &PoolFixture| -> Value { serde_json::from_str(&pool.dir.read("pool/access.json")).unwrap() };
    let dir = TestDir::new();
    for field in ["secret", "certificate"] {
        let mut mixed = read(&ours);
        mixed[field] = read(&other)[field].clone();
        // As from another machine: the local socket needs no certificate.
        mixed.as_object_mut().unwrap().remove("beside");
        let file = dir.write("access.json", mixed.to_string());
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let run = dir.run(&["dispatch", "status", "--dir", "."]).ends(1);
        run.says("cannot be reached").says("hint: another server answers there");
    }
    ours.stop();
    other.stop();
}
