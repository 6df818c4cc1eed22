//! What a tenant's token cannot do through a server and a worker with default settings: run commands,
//! start the operator's batch files, call private addresses.

use std::path::Path;

use serde_json::{Value, json};

use crate::http::server::{HttpServer, answer};
use crate::serve::ServeProcess;
use crate::support::TestDir;

/// A server with tokens, and a tenant's token.
struct TenantFixture {
    dir: TestDir,
    server: ServeProcess,
    token: String,
}

impl TenantFixture {
    fn start() -> Self {
        let dir = TestDir::new();
        let add = ["--quiet", "token", "add", "--for", "acme", "--role", "submit"];
        let token = dir.run(&add).ok().out.trim().to_owned();
        let server = ServeProcess::start(&dir, &[]);
        Self { dir, server, token }
    }

    fn send(&self, kind: &str, payload: &Value) -> (u16, Value) {
        let unit = json!({ "kind": kind, "payload": payload }).to_string();
        let (status, body) = self.server.send("POST", "/api/v1/units", Some(&self.token), &unit);
        (status, serde_json::from_str(&body).unwrap())
    }

    /// Sends a unit and runs it.
    fn run(&self, kind: &str, payload: &Value) -> Value {
        let (status, sent) = self.send(kind, payload);
        assert_eq!(status, 201, "{sent}");
        self.dir.work();
        self.dir.unit(sent["unit"].as_str().unwrap())
    }

    fn allow(&self, kind: &str) {
        let tenants = self.dir.run(&["tenant", "list", "--json"]).ok().json();
        let verb = if tenants == json!([]) { "add" } else { "set" };
        self.dir.run(&["tenant", verb, "acme", "--allow-kind", kind]).ok();
    }
}

#[test]
fn a_tenant_runs_commands_only_while_the_operator_allows_it() {
    let site = TenantFixture::start();
    let payload = json!({ "argv": ["touch", "proof"] });
    let (status, refusal) = site.send("exec", &payload);
    assert_eq!(status, 403, "{refusal}");
    assert!(refusal["detail"].as_str().unwrap().contains("--allow-kind exec"), "{refusal}");
    site.allow("exec");
    let shown = site.dir.run(&["tenant", "show", "acme"]).ok().out;
    assert!(shown.contains("allowed kinds") && shown.contains("exec"), "{shown}");
    assert!(site.dir.run(&["tenant", "list"]).ok().out.contains("exec"));
    let unit = site.run("exec", &payload);
    assert_eq!((&unit["state"], &unit["rights"]), (&json!("done"), &json!("tenant")), "{unit}");
    std::fs::remove_file(site.dir.path("proof")).unwrap();

    // What was queued before the operator closed the kind does not run either.
    let (status, queued) = site.send("exec", &payload);
    assert_eq!(status, 201, "{queued}");
    site.allow("none");
    site.dir.work();
    let unit = site.dir.unit(queued["unit"].as_str().unwrap());
    assert_eq!((&unit["state"], &unit["failure"]["code"]), (&json!("failed"), &json!("kind-closed")));
    assert!(!site.dir.path("proof").exists());

    // The operator's own units of that tenant run.
    site.dir.run(&["submit", "exec", &payload.to_string(), "--tenant", "acme"]).ok();
    site.dir.work();
    assert!(site.dir.path("proof").exists());
    site.dir.run(&["tenant", "set", "acme", "--allow-kind", "http"]).ends(1).says("open to every tenant");
    site.server.stop();
}

#[test]
fn a_tenant_starts_only_the_batch_files_that_the_operator_offers() {
    let site = TenantFixture::start();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/arithmetic");
    for folder in ["offered", "private"] {
        std::fs::create_dir(site.dir.path(folder)).unwrap();
        for name in ["batch.toml", "adder.toml", "seed.sql"] {
            std::fs::copy(example.join(name), site.dir.path(folder).join(name)).unwrap();
        }
    }
    std::os::unix::fs::symlink("../private", site.dir.path("offered/link")).unwrap();
    let start = |path: &str| json!({ "file": path, "folder": site.dir.path(".") });
    assert_eq!(site.send("batch.start", &start("offered/batch.toml")).0, 403);
    site.allow("batch.start");
    site.dir.write("longshore.toml", "[worker]\nbatch_dirs = [\"offered\"]\n");
    let attempts =
        ["private/batch.toml", "offered/../private/batch.toml", "offered/link/batch.toml", "/etc/passwd"];
    for path in attempts {
        let unit = site.run("batch.start", &start(path));
        assert_eq!((&unit["state"], &unit["failure"]["code"]), (&json!("failed"), &json!("batch_start")));
        let message = unit["failure"]["message"].as_str().unwrap();
        assert!(!message.contains('/') && !message.contains("private"), "{message}");
    }
    let set_mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(site.dir.path("offered/batch.toml"), mode).unwrap();
    };
    // Another user of the machine can write it.
    set_mode(0o666);
    let unit = site.run("batch.start", &start("offered/batch.toml"));
    assert_eq!((&unit["state"], &unit["failure"]["code"]), (&json!("failed"), &json!("batch_start")));
    set_mode(0o644);
    let unit = site.run("batch.start", &start("offered/batch.toml"));
    assert_eq!(unit["state"], "done", "{unit}");
    let batch = site.dir.batch(unit["result"]["batch"].as_str().unwrap());
    assert_eq!((&batch["tenant"], &batch["done"]), (&json!("acme"), &json!(5)), "{batch}");
    site.server.stop();
}

#[test]
fn a_tenant_calls_a_private_address_only_where_the_operator_names_it() {
    let site = TenantFixture::start();
    let server = HttpServer::answering(&[answer(200, "", "inside"), answer(200, "", "inside")]);
    let port = server.url.rsplit(':').next().unwrap();
    let names =
        [server.url.clone(), format!("http://localhost:{port}"), format!("http://[::ffff:127.0.0.1]:{port}")];
    for url in &names {
        let unit = site.run("http", &json!({ "url": url }));
        assert_eq!(unit["failure"]["code"], "not-allowed", "{unit}");
    }
    let secret = json!({ "url": "http://example.invalid", "headers": { "x": "env:PATH" } });
    let work = |config: &str| site.dir.write("longshore.toml", config);
    work("[http]\nenv = [\"PATH=https://other.example\"]\n");
    assert_eq!(site.run("http", &secret)["failure"]["code"], "secret");
    work("[http]\nallow_private = [\"http://127.0.0.1:*\"]\n");
    assert_eq!(site.run("http", &json!({ "url": server.url }))["result"]["body"], "inside");
    work("");
    let payload = json!({ "url": server.url }).to_string();
    let id = site.dir.run(&["submit", "http", &payload, "--tenant", "acme"]).ok().out;
    site.dir.work();
    assert_eq!(site.dir.unit(id.trim())["result"]["body"], "inside", "sent by the operator");
    site.server.stop();
}
