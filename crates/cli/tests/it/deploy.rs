//! The files in `deploy/` match the binary: metrics that exist, units that systemd accepts.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{ChildGuard, TIMEOUT, TestDir};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// The metric names in a text.
fn metric_names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '_');
    words.filter(|word| word.starts_with("longshore_")).map(str::to_owned).collect()
}

/// The `/metrics` response of a server with a unit and a pool.
fn fetch_metrics() -> String {
    let dir = TestDir::new();
    dir.submit_script("true", &[]);
    dir.run(&["pool", "init", "licence", "--max", "2"]).ok();
    let mut serve = dir.command(&["serve", "--listen", "127.0.0.1:0", "--json"]);
    let mut server = ChildGuard(serve.stderr(Stdio::null()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let output: Value = serde_json::from_str(&line).expect(&line);
    let mut stream = TcpStream::connect(output["listen"].as_str().unwrap()).unwrap();
    let token = output["token"].as_str().unwrap();
    let ask = format!(
        "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(ask.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    server.signal("TERM");
    assert_eq!(server.ends_within(TIMEOUT), 0);
    response
}

#[test]
fn the_dashboard_for_grafana_asks_for_metrics_that_there_are() {
    let text = std::fs::read_to_string(folder().join("grafana-longshore.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut asked = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            asked.extend(metric_names(target["expr"].as_str().unwrap()));
        }
    }
    let response = fetch_metrics();
    let there = metric_names(&response);
    assert!(asked.len() > 10, "{asked:?}");
    assert_eq!(asked.difference(&there).collect::<Vec<_>>(), Vec::<&String>::new(), "{response}");
    for state in ["ready", "leased", "failed", "scheduled", "blocked"] {
        assert!(response.contains(&format!("state=\"{state}\"")), "{state} in {response}");
    }
    for state in ["in_use", "max", "waiting"] {
        assert!(response.contains(&format!("state=\"{state}\"")), "{state} in {response}");
    }
}

/// The systemd units, with the binary under test instead of the installed one.
fn systemd_units(dir: &TestDir) -> Vec<PathBuf> {
    let binary = env!("CARGO_BIN_EXE_longshore");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_some_and(|extension| extension == "service") {
            let text = std::fs::read_to_string(&entry).unwrap();
            assert!(text.contains("ExecStart=/usr/local/bin/longshore "), "{text}");
            let name = entry.file_name().unwrap().to_str().unwrap();
            all.push(dir.write(name, text.replace("/usr/local/bin/longshore", binary)));
        }
    }
    assert_eq!(all.len(), 3);
    all
}

#[test]
fn systemd_takes_the_units_and_finds_them_closed() {
    let dir = TestDir::new();
    for unit in systemd_units(&dir) {
        let verify = |args: &[&str]| {
            let output = Command::new("systemd-analyze").args(args).arg(&unit).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{}: {stderr}", unit.display());
            stderr
        };
        let stderr = verify(&["verify", "--man=no"]);
        let name = unit.file_name().unwrap().to_str().unwrap().replace("@.", "@i.");
        let about: Vec<&str> =
            stderr.lines().filter(|line| line.contains(&name) || line.contains("longshore-")).collect();
        assert_eq!(about, Vec::<&str>::new());
        verify(&["security", "--offline=true", "--threshold=20"]);
    }
}

/// The documents of `deploy/kubernetes.yaml`, read by a standard parser.
fn kubernetes_objects() -> Vec<Value> {
    let read = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(open(sys.argv[1]))), sys.stdout)";
    let mut python = Command::new("/usr/bin/python3");
    let read = python.args(["-c", read]).arg(folder().join("kubernetes.yaml")).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let objects: Vec<Value> = serde_json::from_slice(&read.stdout).unwrap();
    objects.into_iter().filter(|object| !object.is_null()).collect()
}

#[test]
fn the_manifests_for_kubernetes_have_commands_volumes_and_a_metric_that_there_are() {
    let dir = TestDir::new();
    let objects = kubernetes_objects();
    let mut commands = 0;
    for object in &objects {
        let pod = &object["spec"]["template"]["spec"];
        let Some(containers) = pod["containers"].as_array() else { continue };
        let claims = object["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten();
        let claims = claims.map(|claim| &claim["metadata"]["name"]);
        let volumes = pod["volumes"].as_array().unwrap().iter().map(|volume| &volume["name"]);
        let volumes: Vec<&Value> = volumes.chain(claims).collect();
        for container in containers.iter().chain(pod["initContainers"].as_array().into_iter().flatten()) {
            for mount in container["volumeMounts"].as_array().unwrap() {
                assert!(volumes.contains(&&mount["name"]), "{mount}");
            }
        }
        for container in containers {
            let words = container["args"].as_array().unwrap().iter();
            let words: Vec<&str> = words.map(|word| word.as_str().unwrap()).collect();
            let words: Vec<&str> =
                words.iter().map(|word| if *word == "$(POD_IP)" { "10.0.0.5" } else { word }).collect();
            // The parser rejects unknown words before it prints help.
            let (ours, base) =
                words.split_at(words.iter().position(|word| *word == "--").unwrap_or(words.len()));
            dir.run(&[ours, &["--help"], base].concat()).ok();
            dir.run(&[ours, &["--no-such-option", "--help"], base].concat()).ends(2);
            commands += 1;
        }
    }
    assert_eq!(commands, 3);
    let scaled = objects.iter().find(|object| object["kind"] == "ScaledObject").unwrap();
    let query = scaled["spec"]["triggers"][0]["metadata"]["query"].as_str().unwrap();
    let (response, docs) = (fetch_metrics(), include_str!("../../../../docs/kubernetes.md"));
    assert!(docs.contains(query), "{query}");
    assert!(response.contains("longshore_units{queue=\"default\",state=\"ready\"}"), "{response}");
}

#[test]
fn the_commands_of_the_units_are_ours() {
    let dir = TestDir::new();
    for unit in systemd_units(&dir) {
        let text = std::fs::read_to_string(unit).unwrap();
        let command = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let command = command.replace("%i", "mail");
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        // The parser rejects unknown words before it prints help.
        dir.run(&[&words[..], &["--help"]].concat()).ok();
        let wrong = [&words[..], &["--no-such-option", "--help"]].concat();
        dir.run(&wrong).ends(2);
    }
}
