//! What `ai worker` takes from the configuration: prompts by reference, and each tenant's libraries.

use serde_json::{Value, json};

use crate::support::TestDir;

/// A test directory with these settings and an echo profile `parrot` of tenant acme.
fn dir_with_settings(settings: &str) -> TestDir {
    let dir = TestDir::new();
    dir.write("longshore.toml", settings);
    dir.run(&["--tenant", "acme", "profile", "add", "parrot", "--provider", "echo"]).ok();
    dir
}

/// Sends a request of tenant acme, runs the workers until idle, and returns the unit.
fn run_request(dir: &TestDir, more: &Value) -> Value {
    let mut request = json!({ "version": "1.0", "request_id": "r-1", "customer": "acme",
        "profile_ref": "parrot" });
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let send = ["--tenant", "acme", "submit", "ai", "-", "--queue", "ai", "--json"];
    let id = dir.run_with(&send, request.to_string()).ok().json()["unit"].clone();
    dir.run(&["ai", "worker", "--until-idle"]).ok();
    dir.unit(id.as_str().unwrap())
}

const PROMPTS_BY_QUERY: &str = "[ai]\nprompts_sql = \"SELECT :tenant || ' asks by ' || :id\"\n";

#[test]
fn a_prompt_may_be_looked_up_by_a_query_of_the_operators() {
    let dir = dir_with_settings(PROMPTS_BY_QUERY);
    let unit = run_request(&dir, &json!({ "prompt_ref": "ACME_5DTA.AI_PROMPTS.r-1" }));
    assert_eq!(unit["result"]["response"], "acme asks by r-1", "{unit}");
}

#[test]
fn a_prompt_may_be_in_a_file_of_the_tenants_folder() {
    let dir = dir_with_settings("[ai]\nprompts_dir = \"prompts\"\n");
    std::fs::create_dir_all(dir.path("prompts/acme")).unwrap();
    dir.write("prompts/acme/one.txt", "from a file");
    let unit = run_request(&dir, &json!({ "prompt_ref": "one.txt" }));
    assert_eq!(unit["result"]["response"], "from a file", "{unit}");
    let other = json!({ "prompt_ref": "../evil/one.txt", "request_id": "r-2" });
    let unit = run_request(&dir, &other);
    assert_eq!(unit["result"]["error_code"], "INVALID_REQUEST", "{unit}");
}

#[test]
fn settings_that_could_leak_or_make_no_sense_are_refused_with_a_hint() {
    for (settings, why) in [
        ("prompts_sql = \"SELECT :id\"", ":tenant"),
        ("prompts_sql = \"DELETE FROM x WHERE :tenant = :id\"", "prompts_sql"),
        ("prompts_dir = \"a\"\nprompts_sql = \"SELECT 1\"", "both set"),
        ("prompts_db = \"sqlite:x.db\"", "prompts_sql"),
        ("prompts_dir = \"nowhere\"", "there is no folder nowhere"),
        ("libraries = { QGPL = \"acme\", qgpl = \"evil\" }", "`QGPL` and `qgpl`"),
        ("libraries = { QGPL = \"no name\" }", "ai.libraries"),
    ] {
        let dir = TestDir::new();
        dir.write("longshore.toml", format!("[ai]\n{settings}\n"));
        let run = dir.run(&["ai", "worker", "--until-idle"]);
        assert!(run.code != 0, "{settings}");
        run.says(why).says("hint:");
    }
}

#[test]
fn a_library_is_its_tenants_as_the_operator_says_and_nobody_elses() {
    let settings = "[ai]\nlibrary_suffixes = [\"_LIB\"]\nlibraries = { QGPL = \"acme\", EVIL = \"evil\" }\n";
    let dir = dir_with_settings(settings);
    for (n, (library, code)) in [
        // These libraries are acme's; the queues have no reader.
        ("QGPL", "REPLY_QUEUE_GONE"),
        ("acme_lib", "REPLY_QUEUE_GONE"),
        ("ACME", "REPLY_QUEUE_GONE"),
        // These libraries are not acme's.
        ("EVIL", "INVALID_REQUEST"),
        ("ACME_5DTA", "INVALID_REQUEST"),
        ("OTHER", "INVALID_REQUEST"),
    ]
    .into_iter()
    .enumerate()
    {
        let to = json!({ "library": library, "name": "R" });
        let request = json!({ "request_id": format!("r-{n}"), "prompt": "hi", "reply_queue": to });
        let unit = run_request(&dir, &request);
        let found =
            if unit["state"] == "done" { &unit["result"]["error_code"] } else { &unit["failure"]["code"] };
        assert_eq!(found, code, "{library}: {unit}");
    }
}
