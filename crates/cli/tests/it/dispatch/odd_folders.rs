//! Folders in which there is no pool, or one that is not ours: each is told, with a way on.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::base::Local;
use super::kit::Pool;
use crate::support::Place;

const START: [&str; 6] = ["dispatch", "start", "--nthr", "1", "--wait-limit", "30s"];

#[test]
fn a_folder_that_cannot_be_written_to_is_told() {
    let place = Place::new();
    place.write("file", "");
    // Whoever runs this may be root, whom no permission stops.
    for (folder, words) in [("file", "file"), ("file/pool", "file/pool"), ("/sys/p", "/sys/p")] {
        let run = place.run(&[&START[..], &["--dir", folder]].concat()).ends(1);
        run.says("error: cannot").says(words).says("hint: `--dir` names a folder");
    }
}

#[test]
fn an_access_file_that_others_may_read_is_neither_used_nor_replaced() {
    let pool = Pool::start(&["--nthr", "1"]);
    let file = pool.place.path("pool/access.json");
    let set = |mode| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set(0o644);
    let before = std::fs::read(&file).unwrap();
    for command in ["start", "status", "stop"] {
        pool.run(&["dispatch", command])
            .ends(1)
            .says("(mode 0644)")
            .says("hint: any process that has read");
    }
    assert_eq!(std::fs::read(&file).unwrap(), before);
    set(0o600);
    pool.stop();
}

/// What an earlier server, or one on another machine, has left.
#[test]
fn a_stale_access_file_is_told_and_a_new_server_takes_its_place() {
    let pool = Pool::prepare(Box::new(Local), &["--nthr", "1"]);
    pool.start_server().ok();
    let file = pool.place.path("pool/access.json");
    let left = std::fs::read(&file).unwrap();
    pool.stop();
    let write = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    write(&left);
    pool.run(&["dispatch", "status"]).ends(1).says("cannot be reached").says("dispatch start");
    // A machine that nobody has: the network for examples.
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
    let (ours, other) = (Pool::start(&["--nthr", "1"]), Pool::start(&["--nthr", "1"]));
    let read = |pool: &Pool| -> Value {
        serde_json::from_str(&pool.place.read("pool/access.json")).unwrap()
    };
    let place = Place::new();
    for field in ["secret", "certificate"] {
        let mut mixed = read(&ours);
        mixed[field] = read(&other)[field].clone();
        // As from another machine: past the network nobody needs a certificate.
        mixed.as_object_mut().unwrap().remove("beside");
        let file = place.write("access.json", mixed.to_string());
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let run = place.run(&["dispatch", "status", "--dir", "."]).ends(1);
        run.says("cannot be reached").says("hint: another server answers there");
    }
    ours.stop();
    other.stop();
}
