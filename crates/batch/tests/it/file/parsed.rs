//! Values of a batch file in the definition.

use std::time::Duration;

use longshore::batch::{FailureLimit, FailureThreshold, OnThreshold};
use longshore::{OnLost, RetryPolicy, TenantId, Timestamp};
use longshore_ai::{Price, Prices, ProviderName};
use longshore_batch::definition::{
    Action, Ai, Alerts, AskRoute, Database, Definition, Post, PostVerdict, Pre, ProviderBatchOptions,
    RowConcurrency, SqlPost, SqlStatement, StepAction,
};
use longshore_batch::file::{Overrides, SourceLocation};
use serde_json::json;

use super::{FULL, SMALL, folder, load, noon, read, with_params};

fn pre(definition: &Definition) -> &longshore_batch::definition::SqlPre {
    let Pre::Sql(pre) = &definition.pre else { panic!("{:?}", definition.pre) };
    pre
}

fn ai(text: &str) -> Ai {
    read(text).unwrap().definition.ai().unwrap().clone()
}

fn post(definition: &Definition) -> &SqlPost {
    let Post::Sql(post) = &definition.post else { panic!("{:?}", definition.post) };
    post
}

#[test]
fn a_full_file_is_read_key_by_key() {
    let dir = folder(FULL);
    let loaded = load(dir.path(), &noon()).unwrap();
    let home = dir.path().canonicalize().unwrap();
    let batch = &loaded.definition;
    assert_eq!((batch.version, batch.kind.as_str()), (1, "po-review"));
    assert_eq!(batch.source, home.join("batch.toml").display().to_string());
    assert_eq!(batch.tenant, TenantId::new("acme").unwrap());
    assert_eq!(batch.database, Database::Url(format!("sqlite:{}/orders.db", home.display())));
    assert_eq!(loaded.seed, Some(home.join("seed.sql")));
    assert_eq!(loaded.dir, home);
    assert_eq!((batch.workers, batch.on_lost), (RowConcurrency::Fixed(8), OnLost::Fail));
    assert_eq!(batch.deadline, Some(Timestamp::parse("2026-11-15T20:00:00Z").unwrap()));
    let limit = FailureLimit::Percent(5.0);
    assert_eq!(batch.threshold, Some(FailureThreshold { limit, then: OnThreshold::Fail }));
    let retry = RetryPolicy {
        max_attempts: 4,
        base: Duration::from_secs(2),
        cap: Duration::from_secs(300),
        max_age: None,
    };
    assert_eq!(batch.retry, retry);
    let notify = home.join("./notify.sh").display().to_string();
    assert_eq!(batch.completion, Some(Action::Command(vec![notify, "--now".into()])));
    let action = Some(Action::Http("http://alerts.example/batch".into()));
    assert_eq!(batch.alerts, Alerts { no_progress: Duration::from_secs(600), action });
}

#[test]
fn candidates_are_read_without_their_semicolon() {
    let loaded = read(FULL).unwrap();
    let candidates = &loaded.definition.candidates;
    assert!(candidates.sql.starts_with("SELECT po_line_id"), "{}", candidates.sql);
    assert!(candidates.sql.ends_with(":since"), "{}", candidates.sql);
    assert_eq!((candidates.key.as_str(), candidates.priority.as_deref()), ("po_line_id", Some("priority")));
    assert_eq!((candidates.limit, candidates.ahead), (Some(500), 2000));
    assert_eq!(candidates.claim.as_deref(), Some("po-lines"));
    assert_eq!(candidates.params["since"], json!("2026-01-01"));
}

#[test]
fn pre_and_ai_hold_the_files_they_name() {
    let loaded = read(FULL).unwrap();
    let pre = pre(&loaded.definition);
    assert!(pre.template.starts_with("Is {{ qty }} right?"));
    assert!(pre.template_name.ends_with("/prompt.md"), "{}", pre.template_name);
    assert_eq!(pre.lists.keys().collect::<Vec<_>>(), ["history"]);
    let ai = loaded.definition.ai().unwrap();
    assert_eq!(
        (ai.profile.inline().unwrap().name.as_str(), ai.profile.inline().unwrap().provider),
        ("reviewer", ProviderName::Scripted)
    );
    assert_eq!(ai.profile.inline().unwrap().prices, Prices::flat("0.8".parse().unwrap(), Price::dollars(4)));
    assert_eq!(
        (ai.profile.inline().unwrap().delay, ai.timeout),
        (Duration::from_millis(20), Duration::from_secs(30))
    );
    assert_eq!((ai.max_tokens, ai.temperature), (300, 0.5));
    assert!(ai.profile.inline().unwrap().script.as_deref().unwrap().contains("[[answer]]"));
    assert_eq!(ai.schema.as_ref().unwrap()["properties"]["confidence"], json!({"type": "number"}));
}

#[test]
fn prices_depend_on_caches_batches_tiers_and_days() {
    let long = r#"prices = { input = 3, output = "15", cache_read = 0.3, batch = 0.5, tiers = [
        { above = 200_000, input = 6 },
        { tier = "priority", output = 30.5 },
    ], rates = [{ from = 2027-01-01, until = "2027-07-01T12:00:00Z", input = 2.5, output = 12 }] }"#;
    let read = read(&FULL.replace("prices = { input = 0.8, output = 4.0 }", long)).unwrap();
    let written = json!({ "input": 3, "output": 15, "cache_read": 0.3, "batch": 0.5, "tiers": [
        { "above": 200_000, "input": 6 },
        { "tier": "priority", "output": 30.5 },
    ], "rates": [{ "from": "2027-01-01", "until": "2027-07-01T12:00:00Z", "input": 2.5, "output": 12 }]});
    let written: Prices = serde_json::from_value(written).unwrap();
    assert_eq!(read.definition.ai().unwrap().profile.inline().unwrap().prices, written);
}

#[test]
fn post_is_a_text_a_list_or_a_table_and_a_text_may_hold_several_statements() {
    let loaded = read(FULL).unwrap();
    let post = post(&loaded.definition);
    let sql = |statements: &[SqlStatement]| -> Vec<String> {
        statements.iter().map(|statement| statement.sql.clone()).collect()
    };
    assert_eq!(sql(&post.always), ["INSERT INTO log (line, status) VALUES (:key, :status)"]);
    assert_eq!(post.success.iter().map(|statement| statement.rows).collect::<Vec<_>>(), [None, Some(1)]);
    assert_eq!(
        sql(&post.fail),
        [
            "UPDATE po_lines SET error = :error_code WHERE po_line_id = :key",
            "DELETE FROM todo WHERE line = :key"
        ]
    );
    assert!(post.retry.is_empty());
    let rule = &post.rules[0];
    assert_eq!((rule.then, rule.after), (PostVerdict::Retry, Some(Duration::from_secs(10))));
}

#[test]
fn a_step_has_the_budget_and_the_prompt_limit_of_its_batch() {
    let steps = r#"
[[step]]
name = "first"
prompt = "a"
profile = "echo"

[[step]]
name = "second"
prompt = "b"
profile = "echo"
max_prompt = "1KB"
"#;
    let text = SMALL.replace("[ai]\n", "[ai]\nbudget = \"0.5\"\nmax_prompt = \"2KB\"\n") + steps;
    let definition = read(&text).unwrap().definition;
    let limits = definition.steps.iter().map(|step| {
        let StepAction::Ask(prompt) = &step.action else { panic!("{step:?}") };
        (prompt.ai.budget, prompt.ai.max_prompt)
    });
    let budget = definition.ai().unwrap().budget;
    assert!(budget.is_some());
    assert_eq!(limits.collect::<Vec<_>>(), [(budget, 2_000), (budget, 1_000)]);
}

#[test]
fn a_file_with_mail_has_a_mail_step_and_its_stored_definition_reads_back() {
    let mail = "[mail]\nfrom = \"a@example.org\"\nto = \"b@example.org\"\nsubject = \"News\"\n\
                template = \"<mjml/>\"\npool = \"smtp\"\ntimeout = \"5s\"";
    let text = SMALL.replace("[ai]\nprofile = \"echo\"", mail);
    let text = text.replace("prompt = \"{{ id }}?\"\n", "");
    let definition = read(&text).unwrap().definition;
    assert!(definition.ai().is_none() && definition.provider_batch().is_none());
    assert_eq!(definition.pool().unwrap().as_str(), "smtp");
    assert_eq!(definition.timeout(), Duration::from_secs(5));
    let stored = serde_json::to_value(&definition).unwrap();
    assert_eq!((stored.get("ai"), &stored["mail"]["to"]), (None, &json!("b@example.org")));
    assert_eq!(serde_json::from_value::<Definition>(stored).unwrap(), definition);
}

#[test]
fn a_small_file_gets_the_defaults() {
    let loaded = read(SMALL).unwrap();
    let batch = &loaded.definition;
    assert_eq!((&batch.tenant, &batch.database), (&TenantId::default(), &Database::Store));
    assert_eq!((batch.workers, batch.on_lost), (RowConcurrency::Fixed(20), OnLost::Rerun));
    assert_eq!((batch.deadline, &loaded.seed, &batch.completion), (None, &None, &None));
    assert_eq!(batch.candidates.claim.as_deref(), Some("small"));
    assert_eq!(batch.candidates.ahead, 10_000);
    assert_eq!(batch.retry.max_attempts, 3);
    let limit = FailureLimit::Percent(10.0);
    assert_eq!(batch.threshold, Some(FailureThreshold { limit, then: OnThreshold::Pause }));
    assert_eq!(post(batch), &SqlPost::default());
    let ai = batch.ai().unwrap();
    assert_eq!(ai.profile.inline().unwrap().provider, ProviderName::Echo);
    assert_eq!((ai.timeout, ai.max_tokens), (Duration::from_secs(60), 1024));
}

#[test]
fn the_file_itself_may_be_named_instead_of_its_folder() {
    let dir = folder(SMALL);
    let by_file = load(&dir.path().join("batch.toml"), &noon()).unwrap();
    assert_eq!(by_file, load(dir.path(), &noon()).unwrap());
}

#[test]
fn files_beside_a_link_to_a_batch_file_are_meant() {
    let (dir, elsewhere) = (folder(FULL), folder(""));
    std::fs::write(elsewhere.path().join("prompt.md"), "another {{ qty }}").unwrap();
    let link = elsewhere.path().join("linked.toml");
    std::os::unix::fs::symlink(dir.path().join("batch.toml"), &link).unwrap();
    let loaded = load(&link, &noon()).unwrap();
    assert_eq!(pre(&loaded.definition).template, "another {{ qty }}");
    assert!(loaded.definition.source.ends_with("linked.toml"));
}

#[test]
fn the_command_line_wins_over_the_file() {
    let overrides = Overrides {
        tenant: Some(TenantId::new("globex").unwrap()),
        kind: Some("other".into()),
        workers: Some(RowConcurrency::Auto),
        limit: Some(7),
        ..with_params(&[("since", "2026-06-01")])
    };
    let batch = load(folder(FULL).path(), &overrides).unwrap().definition;
    assert_eq!((batch.tenant.as_str(), batch.kind.as_str()), ("globex", "other"));
    assert_eq!((batch.workers, batch.candidates.limit), (RowConcurrency::Auto, Some(7)));
    assert_eq!(batch.candidates.params["since"], json!("2026-06-01"));
}

#[test]
fn duplicates_are_allowed_by_having_no_claim() {
    let overrides = Overrides { allow_duplicates: true, ..noon() };
    assert_eq!(load(folder(FULL).path(), &overrides).unwrap().definition.candidates.claim, None);
}

#[test]
fn a_parameter_is_a_number_if_it_reads_as_one_and_text_if_its_default_is() {
    let text = SMALL.replace("FROM t\"", "FROM t WHERE a = :a\"");
    let with_default = text.replace("[pre]", "[candidates.params]\na = \"x\"\n[pre]");
    let value = |text: &str, given: &str| {
        let loaded = load(folder(text).path(), &with_params(&[("a", given)])).unwrap();
        loaded.definition.candidates.params["a"].clone()
    };
    for (given, meant) in [
        ("12", json!(12)),
        ("-3", json!(-3)),
        ("1.5", json!(1.5)),
        ("-0.25", json!(-0.25)),
        ("007", json!("007")),
        ("+1", json!("+1")),
        ("00.5", json!("00.5")),
        ("1e5", json!("1e5")),
        ("nan", json!("nan")),
        ("99999999999999999999", json!("99999999999999999999")),
        ("2026-01-01", json!("2026-01-01")),
        ("", json!("")),
        ("'; DROP TABLE t", json!("'; DROP TABLE t")),
    ] {
        assert_eq!(value(&text, given), meant, "{given}");
        assert_eq!(value(&with_default, given), json!(given), "{given}");
    }
}

#[test]
fn a_failure_limit_is_a_number_a_share_or_none() {
    let limit = |limit: &str| {
        let text = format!("{SMALL}\n[failures]\nlimit = {limit}\n");
        read(&text).unwrap().definition.threshold.map(|threshold| threshold.limit)
    };
    assert_eq!(limit("50"), Some(FailureLimit::Units(50)));
    assert_eq!(limit("\"2.5%\""), Some(FailureLimit::Percent(2.5)));
    assert_eq!(limit("\"none\""), None);
}

#[test]
fn a_digest_has_a_failure_limit_only_if_one_is_written() {
    let mail = "[mail]\nfrom = \"a@b.c\"\nto = \"{{ id }}\"\nsubject = \"s\"\ntemplate = \"t\"\n";
    let text = SMALL.replace("[ai]\nprofile = \"echo\"\n", mail).replace("prompt = \"{{ id }}?\"\n", "");
    assert_eq!(read(&text).unwrap().definition.threshold, None);
    let limited = read(&format!("{text}[failures]\nthen = \"fail\"\n")).unwrap();
    assert_eq!(limited.definition.threshold.unwrap().limit, FailureLimit::Percent(10.0));
}

#[test]
fn databases_are_kept_as_they_are_but_for_relative_files() {
    let database = |url: &str| {
        let text = format!("database = \"{url}\"\n{SMALL}");
        let dir = folder(&text);
        let database = load(dir.path(), &noon()).unwrap().definition.database;
        let Database::Url(url) = database else { panic!("{database:?}") };
        url.replace(dir.path().canonicalize().unwrap().to_str().unwrap(), "HERE")
    };
    assert_eq!(database("sqlite:data/a.db"), "sqlite:HERE/data/a.db");
    assert_eq!(database("sqlite:///var/a.db"), "sqlite:/var/a.db");
    assert_eq!(database("file:../orders.url"), "file:HERE/../orders.url");
    assert_eq!(database("env:ROWS_{tenant}"), "env:ROWS_default");
    for url in ["env:ORDERS_URL", "postgres://host/db", "mysql://host/db", "odbc:DSN=AS400"] {
        assert_eq!(database(url), url);
    }
}

#[test]
fn a_schema_may_be_written_in_place() {
    let text = format!(
        "{SMALL}\n[ai.schema]\ntype = \"object\"\nrequired = [\"a\"]\n\n[ai.schema.properties.a]\nminimum = 1\n"
    );
    let schema = ai(&text).schema.unwrap();
    let meant = json!({"type": "object", "required": ["a"], "properties": {"a": {"minimum": 1}}});
    assert_eq!(schema, meant);
}

#[test]
fn pre_and_post_may_be_code() {
    let pre_sql = "sql = \"SELECT * FROM t WHERE id = :key\"\nprompt = \"{{ id }}?\"";
    let text = SMALL.replace(pre_sql, "code = \"make\"") + "\n[post]\ncode = \"apply\"\n";
    let batch = read(&text).unwrap().definition;
    assert_eq!((batch.pre, batch.post), (Pre::Code("make".into()), Post::Code("apply".into())));
}

#[test]
fn places_point_at_the_texts_wherever_they_are() {
    let text = FULL.replace("sql = \"SELECT * FROM po_lines", "sql = \"\"\"\n\n  SELECT *\n FROM po_lines");
    let text = text.replace("po_line_id = :key\"\nprompt", "po_line_id = :key\"\"\"\nprompt");
    let dir = folder(&text);
    let loaded = load(dir.path(), &noon()).unwrap();
    let batch = dir.path().join("batch.toml").display().to_string();
    let line = |begins: &str| text.lines().position(|line| line.contains(begins)).unwrap() + 1;
    let place = |key: &str| loaded.source_map.find(key).cloned().unwrap_or_else(|| panic!("{key}"));
    for (key, begins) in [
        ("candidates.sql", "SELECT po_line_id, priority"),
        ("candidates.key", "key = \"po_line_id\""),
        ("pre.sql", "  SELECT *"),
        ("pre.lists.history", "history ="),
        ("post.success[1]", "success ="),
        ("post.fail[1]", "fail ="),
        ("post.rules[0].when", "when ="),
        ("database", "database ="),
        ("ai.profile", "profile ="),
    ] {
        assert_eq!(place(key), SourceLocation { file: batch.clone(), line: line(begins) }, "{key}");
    }
    for (key, file) in
        [("pre.prompt", "prompt.md"), ("ai.schema", "verdict.schema.json"), ("ai.script", "reviewer.toml")]
    {
        let file = dir.path().join(file).display().to_string();
        assert_eq!(place(key), SourceLocation { file, line: 1 }, "{key}");
    }
}

#[test]
fn a_definition_survives_the_store() {
    let definition = read(FULL).unwrap().definition;
    let text = serde_json::to_string(&definition).unwrap();
    assert_eq!(serde_json::from_str::<Definition>(&text).unwrap(), definition);
}

#[test]
fn a_profile_with_an_at_is_the_tenants_own() {
    let own = "profile = \"@fast\"\nthrough = \"queue\"";
    let ai = ai(&SMALL.replace("profile = \"echo\"", own));
    assert_eq!((ai.profile.display_name(), ai.through), ("@fast".to_owned(), AskRoute::Queue));
    assert!(ai.profile.inline().is_none() && !ai.needs_inference());
}

#[test]
fn a_profile_of_the_file_may_ask_a_real_provider() {
    let real = r#"
[profiles.claude]
provider = "anthropic"
model = "claude-x"
endpoint = "http://127.0.0.1:9"
key = "env:KEY"
wire = { cache = "5m" }
limits = { requests = 60, in_flight = 4 }
fallback = ["spare"]
"#;
    let text = format!("{}\n{real}", SMALL.replace("\"echo\"", "\"claude\""));
    let ai = ai(&text);
    let profile = ai.profile.inline().unwrap();
    assert_eq!((profile.provider, profile.model.as_str()), (ProviderName::Anthropic, "claude-x"));
    assert_eq!((profile.key.as_deref(), profile.limits.in_flight), (Some("env:KEY"), Some(4)));
    assert_eq!(profile.fallback, ["spare"]);
    assert!(ai.needs_inference());
}

#[test]
fn questions_may_go_with_a_providers_batches() {
    let with = |settings: &str| ai(&SMALL.replace("profile = \"echo\"", settings));
    assert_eq!(with("profile = \"@a\"\nmode = \"direct\"").provider_batch, None);
    let usual = with("profile = \"@a\"\nmode = \"provider-batch\"").provider_batch.unwrap();
    assert_eq!(usual, ProviderBatchOptions::default());
    let own =
        "profile = \"@a\"\nmode = \"provider-batch\"\nprovider_batch = { gather = \"5m\", look = \"2m\" }";
    let whole = read(&SMALL.replace("profile = \"echo\"", own)).unwrap().definition;
    assert_eq!(whole.candidates.ahead, 100_000, "rows that sleep do not keep others out");
    assert!(whole.alerts.no_progress > std::time::Duration::from_secs(24 * 3600), "and may sleep long");
    let own = with(own).provider_batch.unwrap();
    let secs = |span: std::time::Duration| span.as_secs();
    assert_eq!((secs(own.gather), secs(own.look), secs(own.lag)), (300, 120, 60));
}
