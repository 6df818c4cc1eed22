//! `profile`: documents created, checked, extended, changed and shown; defaults and limits of a
//! tenant.

use serde_json::{Value, json};

use crate::support::TestDir;

fn show_profile(dir: &TestDir, name: &str) -> Value {
    dir.run(&["profile", "show", name, "--json"]).ok().json()
}

#[test]
fn a_profile_is_added_shown_changed_suspended_and_removed() {
    let dir = TestDir::new();
    assert_eq!(dir.run(&["profile", "list", "--json"]).ok().json(), json!([]));
    let add = ["profile", "add", "fast", "--provider", "anthropic", "--model", "haiku"];
    let prices = ["--price-input", "0.1", "--price-output", "0.5", "--price-cache-read", "0.01"];
    let limits = ["--rpm", "1000", "--tpm", "2M", "--in-flight", "8", "--when-full", "refuse"];
    let more = ["--key", "env:CLAUDE", "--max-tokens", "500", "--set", "wire.sampling=true"];
    let add = [&add[..], &prices, &limits, &more].concat();
    dir.run(&add).ok();
    dir.run(&add).ends(1).says("already").says("profile set fast");
    let fast = show_profile(&dir, "fast");
    assert_eq!(
        fast["body"],
        json!({
            "provider": "anthropic", "model": "haiku", "key": "env:CLAUDE", "max_tokens": 500,
            "prices": { "input": 0.1, "output": 0.5, "cache_read": 0.01 },
            "limits": { "requests": 1000, "tokens": 2_000_000, "in_flight": 8, "when_full": "refuse" },
            "wire": { "sampling": true },
        })
    );
    dir.run(&["profile", "set", "fast", "--model", "opus", "--rpm", "none", "--unset", "wire"]).ok();
    let fast = show_profile(&dir, "fast");
    assert_eq!((&fast["body"]["model"], &fast["revision"]), (&json!("opus"), &json!(2)));
    assert_eq!((&fast["body"]["limits"]["requests"], &fast["body"]["wire"]), (&Value::Null, &Value::Null));
    dir.run(&["profile", "suspend", "fast"]).ok();
    assert_eq!(show_profile(&dir, "fast")["suspended"], true);
    let list = dir.run(&["profile", "list"]).ok().out;
    assert!(list.contains("suspended") && list.contains("env:CLAUDE"), "{list}");
    dir.run(&["profile", "resume", "fast"]).ok();
    let shown = dir.run(&["profile", "show", "fast"]).ok().out;
    assert!(shown.contains("in $0.1, out $0.5, cache read $0.01"), "{shown}");
    dir.run(&["profile", "remove", "fast"]).ok();
    dir.run(&["profile", "show", "fast"]).ends(1).says("no profile `fast`");
}

#[test]
fn a_mistake_in_a_profile_is_refused_with_what_was_meant() {
    let dir = TestDir::new();
    dir.run(&["profile", "add", "fast", "--provider", "echo"]).ok();
    dir.write("bad.toml", "provider = \"echo\"\nmodle = \"m\"\n");
    dir.write("bad.json", "{\"provider\": }");
    dir.write("named.json", "{\"provider\": \"echo\", \"name\": \"x\"}");
    for (args, code, words) in [
        (&["profile", "add", "p"][..], 2, "needs a provider"),
        (&["profile", "add", "p", "--provider", "opnai"], 2, "did you mean `openai`?"),
        (&["profile", "add", "p", "--provider", "openai"], 2, "needs a model"),
        (&["profile", "add", "p", "--provider", "echo", "--set", "limits.rps=1"], 2, "unknown part `rps`"),
        (&["profile", "add", "p", "--provider", "echo", "--set", "modle=1"], 2, "did you mean `model`?"),
        (&["profile", "add", "p", "--provider", "echo", "--set", "model"], 2, "no `=`"),
        (&["profile", "add", "p", "--provider", "echo", "--price-input", "free"], 2, "is no price"),
        (&["profile", "add", "p", "--provider", "echo", "--price-input", "1"], 2, "in `prices`"),
        (&["profile", "add", "p", "--provider", "echo", "--endpoint", "nowhere"], 2, "is not a URL"),
        (&["profile", "add", "p", "--provider", "echo", "--rpm", "0"], 2, "not above zero"),
        (&["profile", "add", "p", "--provider", "echo", "--rpm", "many"], 2, "`none`"),
        (&["profile", "add", "p", "--provider", "echo", "--fallback", "p"], 2, "itself"),
        (&["profile", "add", "p", "--provider", "echo", "--extends", "none"], 2, "no template `none`"),
        (&["profile", "add", "p", "--provider", "echo", "--extends", "fast"], 2, "is no template"),
        (&["profile", "add", ".p", "--provider", "echo"], 2, "begins with a dot"),
        (&["profile", "add", "p", "--from", "bad.toml"], 2, "did you mean `model`?"),
        (&["profile", "add", "p", "--from", "bad.json"], 2, "line 1"),
        (&["profile", "add", "p", "--from", "named.json"], 2, "leave `name` out"),
        (&["profile", "add", "p", "--from", "none.toml"], 1, "none.toml"),
        (&["profile", "add", "p", "--from", "bad.yaml"], 2, "neither .toml nor .json"),
        (&["profile", "add", "p", "--provider", "scripted"], 1, "has no script"),
        (&["profile", "set", "fast"], 2, "nothing to set"),
        (&["profile", "set", "fats", "--model", "m"], 1, "did you mean `fast`?"),
        (&["profile", "suspend", "fats"], 1, "did you mean `fast`?"),
        (&["profile", "default", "fats"], 1, "did you mean `fast`?"),
        (&["profile", "limits", "--rpm", "0"], 2, "above zero"),
    ] {
        let run = dir.run(args).ends(code).says(words);
        assert!(run.err.contains("hint:") || run.err.contains("--help"), "{}", run.err);
    }
    let names = dir.run(&["profile", "list", "--json"]).ok().json();
    assert_eq!(names.as_array().unwrap().len(), 1, "nothing was written: {names}");
}

#[test]
fn what_is_doubtful_is_done_with_a_warning() {
    let dir = TestDir::new();
    let add = |name: &str, more: &[&str]| {
        dir.run(&[&["profile", "add", name, "--provider", "openai", "--model", "gpt-5"], more].concat()).ok()
    };
    add("a", &["--endpoint", "http://10.1.2.3/v1"]).says("in the clear");
    add("b", &["--key", "later"]).says("key add later");
    add("c", &["--fallback", "later"]).says("no profile `later`");
    let quiet = add("e", &["--endpoint", "http://127.0.0.1:8080", "--fallback", "a"]);
    assert_eq!(quiet.err, "");
}

#[test]
fn a_profile_extends_a_template_of_the_house_and_does_not_show_its_key() {
    let dir = TestDir::new();
    let house = ["profile", "add", "house", "--template", "--provider", "openai", "--key", "env:HOUSE"];
    let prices = ["--price-input", "1", "--price-output", "2", "--also-model", "large-4.1=5/25"];
    dir.run(&[&house[..], &["--model", "mini", "--rpm", "500"], &prices].concat()).ok();
    let draft = ["profile", "add", "draft", "--tenant", "acme", "--extends", "house"];
    let huge = dir.run(&[&draft[..], &["--model", "huge"]].concat()).ends(2);
    huge.says("it names: large-4.1, mini").says("--also-model huge=IN/OUT");
    let own = ["--also-model", "huge=0/0"];
    dir.run(&[&draft[..], &own].concat()).ends(2).says("`models` of its own");
    dir.run(&[&draft[..], &["--also-model", "huge=1"]].concat()).ends(2).says("IN/OUT, as 5/25");
    dir.run(&[&draft[..], &["--model", "large-4.1", "--tpm", "1k"]].concat()).ok();
    let draft = dir.run(&["profile", "show", "draft", "--tenant", "acme", "--json"]).ok().json();
    assert_eq!(draft["whole"]["provider"], "openai");
    assert_eq!(draft["whole"]["limits"], json!({ "requests": 500, "tokens": 1000 }));
    assert_eq!(draft["whole"]["key"], Value::Null);
    let shown = dir.run(&["profile", "show", "draft", "--tenant", "acme"]).ok().out;
    assert!(shown.contains("its template's") && !shown.contains("env:HOUSE"), "{shown}");
    assert!(shown.contains("prices of large-4.1") && shown.contains("in $5, out $25"), "{shown}");
    let cheaper = ["profile", "set", "draft", "--tenant", "acme", "--price-input", "0"];
    let refused = dir.run(&[&cheaper[..], &["--price-output", "0"]].concat()).ends(2);
    refused.says("the template's prices").says("a key of your own");
    dir.run(&["profile", "default", "house"]).ends(2).says("is a template");
    dir.run(&["profile", "test", "house"]).ends(2).says("is a template");
    dir.run(&["profile", "show", "house", "--tenant", "acme"]).ends(1);
    dir.run(&["profile", "set", "house", "--extends", "house"]).ends(2).says("extends itself");
}

#[test]
fn a_profile_is_read_from_a_file_and_flags_go_on_top() {
    let dir = TestDir::new();
    dir.write(
        "fast.toml",
        "provider = \"ollama\"\nmodel = \"llama3\"\nfallback = [\"other\"]\n\n[prices]\ninput = 3\n\
         output = 15\nrates = [{ from = 2027-01-01, input = 2, output = 10 }]\n\n[wire]\nnum_ctx = 8192\n",
    );
    dir.run(&["profile", "add", "fast", "--from", "fast.toml", "--model", "llama4"]).ok();
    let body = show_profile(&dir, "fast")["body"].clone();
    assert_eq!((&body["model"], &body["wire"]["num_ctx"]), (&json!("llama4"), &json!(8192)));
    assert_eq!(body["prices"]["rates"][0]["from"], "2027-01-01");
    let shown = dir.run(&["profile", "show", "fast"]).ok().out;
    assert!(shown.contains("prices from 2027-01-01T00:00:00"), "{shown}");
    dir.write("again.json", body.to_string());
    dir.run(&["profile", "add", "again", "--from", "again.json"]).ok();
    assert_eq!(show_profile(&dir, "again")["body"], body);
}

#[test]
fn a_tenant_has_a_default_profile_and_limits_for_all() {
    let dir = TestDir::new();
    for name in ["a", "b"] {
        dir.run(&["profile", "add", name, "--provider", "echo", "--tenant", "acme"]).ok();
    }
    let acme = |args: &[&str]| dir.run(&[args, &["--tenant", "acme", "--json"]].concat()).ok().json();
    assert_eq!(acme(&["profile", "default"])["default"], Value::Null);
    acme(&["profile", "default", "a"]);
    acme(&["profile", "limits", "--rpm", "600", "--when-full", "refuse", "--fallback", "b"]);
    let now = acme(&["profile", "limits", "--tpm", "1M", "--rpm", "none"]);
    assert_eq!(
        now,
        json!({ "tenant": "acme", "default": "a", "fallback": "b",
                "limits": { "tokens": 1_000_000, "when_full": "refuse" } })
    );
    let names = acme(&["profile", "list"]);
    assert_eq!(names.as_array().unwrap().len(), 2, "the settings are no profile: {names}");
    let list = dir.run(&["profile", "list"]).ok().out;
    assert!(list.contains("default") && list.contains("open"), "{list}");
    assert_eq!(acme(&["profile", "default", "none"])["default"], Value::Null);
    let shown = dir.run(&["profile", "limits", "--tenant", "acme"]).ok().out;
    assert!(shown.contains("tokens/min") && shown.contains("1000000"), "{shown}");
}

#[test]
fn a_test_reads_the_profile_and_opens_its_key_without_asking_anybody() {
    let dir = super::keys::dir_with_master_key();
    dir.run_with(&["key", "add", "k"], "sk-abc").ok();
    dir.run(&["profile", "add", "p", "--provider", "ollama", "--model", "m", "--key", "k"]).ok();
    let tested = dir.run(&["profile", "test", "p", "--offline", "--json"]).ok().json();
    assert_eq!((&tested["document"], &tested["key"]), (&json!("ok"), &json!("ok")));
    dir.run(&["key", "revoke", "k"]).ok();
    dir.run(&["profile", "test", "p", "--offline"])
        .ends(1)
        .says("may not be used any more")
        .says("key rotate k");
    dir.run(&["profile", "set", "p", "--key", "env:NO_SUCH_VARIABLE_HERE"]).ok();
    dir.run(&["profile", "test", "p", "--offline"]).ends(1).says("NO_SUCH_VARIABLE_HERE");
}

#[test]
fn prices_are_known_shown_and_replaced_by_a_newer_table() {
    let dir = TestDir::new();
    let list = dir.run(&["price", "list"]).ok();
    assert!(
        list.out.contains("claude-haiku-5-5") && list.err.contains("https://"),
        "{} {}",
        list.out,
        list.err
    );
    dir.run(&["profile", "add", "p", "--provider", "openai", "--model", "gpt-5", "--also-model", "*"]).ok();
    let prints = |args: &[&str], words: &str| {
        let out = dir.run(args).ok().out;
        assert!(out.contains(words), "{out}");
    };
    prints(&["profile", "show", "p"], "in $1.25, out $10");
    let unknown = ["profile", "add", "q", "--provider", "openai", "--model", "gpt-99"];
    dir.run(&unknown).ends(2).says("no price is known of openai's model `gpt-99`").says("hint:");
    let further = ["--price-input", "1", "--price-output", "2", "--also-model", "gpt-98"];
    dir.run(&[&unknown[..], &further].concat()).ends(2).says("`gpt-98`").says("--also-model gpt-98=IN/OUT");

    let model = "[models.openai]\n\"gpt-99\" = { input = 3, output = 4 }\n";
    dir.write("old.toml", format!("date = '2020-01-01'\n{model}"));
    dir.write("bad.toml", "date = 'soon'\n[models]\n");
    dir.write("future.toml", format!("date = '2999-01-01'\n{model}"));
    let shipped = dir.run(&["price", "list", "--json"]).ok().json()[0]["date"].clone();
    dir.write("new.toml", format!("date = {shipped}\n{model}"));
    let future = "is of 2999-01-01, which is in the future";
    dir.run(&["price", "update", "future.toml"]).ends(2).says(future).says("hint:");
    dir.run(&["price", "update", "old.toml"]).ends(2).says("is of 2020-01-01").says("hint:");
    dir.run(&["price", "update", "bad.toml"]).ends(2).says("`date` is `soon`").says("hint:");
    dir.run(&["price", "update", "none.toml"]).ends(1).says("cannot read none.toml").says("hint:");
    dir.run(&["price", "list", "--tenant", "acme"]).ends(2).says("for all tenants");
    prints(&["price", "update", "new.toml"], "1 models, 1 of them new or changed");
    dir.run(&unknown).ok();
    prints(&["profile", "show", "q"], "in $3, out $4");
    let models = dir.run(&["price", "list", "--json"]).ok().json();
    let find = |name: &str| models.as_array().unwrap().iter().find(|one| one["model"] == name).cloned();
    assert_eq!(find("gpt-99").unwrap()["input"], 3.0);
    assert!(find("gpt-5").is_some(), "the others stay");
    let profiles = dir.run(&["profile", "list", "--json"]).ok().json();
    assert_eq!(profiles.as_array().unwrap().len(), 2, "the table is no profile: {profiles}");
}

#[test]
fn an_answer_that_breaks_its_schema_ends_with_an_error() {
    let dir = TestDir::new();
    for (name, reply) in [("wrong", "seven"), ("right", "{\"sum\": 7}")] {
        let script = format!("{name}.toml");
        dir.write(&script, format!("[[answer]]\nreply = '{reply}'\n"));
        dir.run(&["profile", "add", name, "--provider", "scripted", "--script", &script]).ok();
    }
    dir.write("schema.json", "{\"type\": \"object\"}");
    dir.write("invalid.json", "{\"type\": 7}");
    let ask = |profile: &str, schema: &str, more: &[&str]| {
        dir.run(&[&["ai", "ask", "3 + 4", "-p", profile, "--schema", schema], more].concat())
    };
    let wrong = ask("wrong", "schema.json", &[]).ends(1);
    assert_eq!(wrong.out, "", "no answer");
    wrong.says("a correction was asked for").says("hint: it was billed");
    let calls = dir.run(&["usage", "--calls", "--json"]).ok().json();
    assert_eq!(calls.as_array().map(Vec::len), Some(2), "both are shown: {calls}");
    let right = ask("right", "schema.json", &["--json"]).ok().json();
    assert_eq!((&right["text"], &right["calls"]), (&json!("{\"sum\": 7}"), &json!(1)));
    ask("right", "schema.json", &["--max-tokens", "1"]).ends(1).says("--max-tokens is too small");
    ask("right", "invalid.json", &[]).ends(2).says("invalid.json");
}

/// A certificate of a private authority.
fn ca_file(dir: &TestDir) {
    let params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
    dir.write("ca.pem", certificate.pem());
}

#[test]
fn retries_a_proxy_and_a_private_authority_are_parts_of_a_profile() {
    let dir = TestDir::new();
    ca_file(&dir);
    dir.run(&["key", "init"]).ok();
    dir.run_with(&["key", "add", "proxy"], "user:secret-1").ok();
    let add = ["profile", "add", "inside", "--provider", "openai", "--model", "m", "--price-input", "1"];
    let route = ["--proxy", "http://proxy.example:3128", "--proxy-key", "proxy", "--ca-file", "ca.pem"];
    let retry = ["--attempts", "3", "--retry-base", "500ms", "--idle-timeout", "20s"];
    dir.run(&[&add[..], &["--price-output", "1"], &route, &retry].concat()).ok();
    let body = show_profile(&dir, "inside")["body"].clone();
    assert_eq!(body["retry"], json!({ "attempts": 3, "base": 0.5, "idle_timeout": 20.0 }));
    assert_eq!((&body["proxy"], &body["proxy_key"]), (&json!("http://proxy.example:3128"), &json!("proxy")));
    assert!(body["ca"].as_str().unwrap().contains("BEGIN CERTIFICATE"), "{body}");
    let shown = dir.run(&["profile", "show", "inside"]).ok().out;
    assert!(shown.contains("1 certificate authorities") && shown.contains("0.5"), "{shown}");
    dir.run(&["profile", "set", "inside", "--attempts", "1", "--unset", "ca"]).ok();
    let body = show_profile(&dir, "inside")["body"].clone();
    assert_eq!((&body["retry"]["attempts"], &body["ca"]), (&json!(1), &Value::Null));
    dir.write("none.pem", "no certificate");
    for (more, words) in [
        (&["--proxy", "http://user:secret-1@proxy.example"][..], "holds a password"),
        (&["--set", "proxy=http://user:secret-1@proxy.example"], "holds a password"),
        (&["--proxy", "socks5://proxy.example"], "not the URL of an HTTP proxy"),
        (&["--ca-file", "none.pem"], "holds no certificates"),
        (&["--set", "retry.attempts=0"], "at least 1"),
    ] {
        let set = [&["profile", "set", "inside"], more].concat();
        let run = dir.run(&set).ends(2).says(words).says("hint:");
        assert!(!run.err.contains("secret-1"), "{}", run.err);
    }
    dir.run(&["ai", "health", "isnide"]).ends(1).says("no profile `isnide`");
}
