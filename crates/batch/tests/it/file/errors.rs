//! Each mistake gives one clear error, at its line.

use std::os::unix::ffi::OsStrExt;

use super::{FULL, SMALL, folder, load, noon, read, with_params};

/// Replaces `right` by `wrong` and expects one error, `below` lines under the start of `wrong`.
fn mistake(text: &str, right: &str, wrong: &str, below: usize, message: &str, hint: &str) {
    assert!(text.contains(right), "the text has no {right}");
    let text = text.replacen(right, wrong, 1);
    let at = text.find(wrong).unwrap();
    let line = text[..at].matches('\n').count() + 1 + below;
    let error = read(&text).expect_err(wrong);
    let shown = format!("{error} | {:?}", error.hint);
    assert!(error.file.ends_with("batch.toml"), "{wrong}: {shown}");
    assert_eq!(error.line, Some(line), "{wrong}: {shown}");
    assert!(error.message.contains(message), "{wrong}: {shown}");
    assert!(error.hint.as_deref().unwrap_or_default().contains(hint), "{wrong}: {shown}");
}

#[test]
fn an_unknown_key_is_refused_with_the_one_that_was_meant() {
    for (right, wrong, message, hint) in [
        ("workers =", "wrokers =", "unknown key `wrokers`", "did you mean `workers`?"),
        ("[retry]", "[retries]", "unknown key `retries`", "did you mean `retry`?"),
        ("limit = 500", "limt = 500", "`limt` in [candidates]", "did you mean `limit`?"),
        ("prompt_file =", "promptfile =", "`promptfile` in [pre]", "did you mean `prompt_file`?"),
        ("max_tokens =", "max_token =", "in [ai]", "did you mean `max_tokens`?"),
        ("delay =", "dealy =", "in [profiles.reviewer]", "did you mean `delay`?"),
        ("attempts =", "zzz =", "in [retry]", "expected one of: attempts, base, cap"),
        ("rows = 1", "row = 1", "`row` in [post.success[1]]", "did you mean `rows`?"),
        ("after =", "aftr =", "in [post.rules[0]]", "did you mean `after`?"),
        ("no_progress =", "noprogress =", "in [alerts]", "did you mean `no_progress`?"),
        ("input =", "inptu =", "in [profiles.reviewer.prices]", "did you mean `input`?"),
        ("command =", "comand =", "in [completion]", "did you mean `command`?"),
        ("then = \"fail\"", "than = \"fail\"", "in [failures]", "did you mean `then`?"),
    ] {
        mistake(FULL, right, wrong, 0, message, hint);
    }
}

#[test]
fn a_value_of_the_wrong_type_is_refused() {
    for (right, wrong, message) in [
        ("type = \"po-review\"", "type = 3", "`type` must be text in quotes, not a number"),
        ("tenant = \"acme\"", "tenant = [\"acme\"]", "`tenant` must be text in quotes, not a list"),
        ("workers = 8", "workers = true", "`workers` must be a number or \"auto\""),
        ("workers = 8", "workers = \"many\"", "`workers` must be a number or \"auto\""),
        ("workers = 8", "workers = 0", "`workers` must be 1 or more"),
        ("workers = 8", "workers = -2", "`workers` cannot be -2"),
        ("workers = 8", "workers = 5000000000", "`workers` is too large"),
        ("limit = 500", "limit = \"500\"", "must be a whole number, not text"),
        ("limit = 500", "limit = 99999999999999999999", "cannot be 99999999999999999999"),
        ("ahead = 2000", "ahead = 0", "must be 1 or more"),
        ("timeout = \"30s\"", "timeout = 30", "must be a length of time in quotes, as \"60s\""),
        ("timeout = \"30s\"", "timeout = \"30\"", "`30` is not a length of time"),
        ("timeout = \"30s\"", "timeout = \"0s\"", "longer than zero"),
        ("deadline = \"8h\"", "deadline = \"8 hours\"", "is not a length of time"),
        ("temperature = 0.5", "temperature = \"hot\"", "must be a number, not text"),
        ("temperature = 0.5", "temperature = -1", "must be 0 or more"),
        ("temperature = 0.5", "temperature = 3", "is above 2"),
        ("temperature = 0.5", "temperature = nan", "must be 0 or more"),
        ("output = 4.0", "output = -4.0", "`-4` is no price"),
        ("output = 4.0", "output = 0.0000001", "more than six decimals"),
        ("output = 4.0", "output = \"much\"", "`much` is no price"),
        ("output = 4.0", "output = 4.0, batch = 2", "a number from 0 to 1"),
        ("output = 4.0", "output = 4.0, cache_read = true", "expected dollars per million tokens"),
        ("output = 4.0", "output = 4.0, tiers = 3", "invalid type: integer `3`, expected a sequence"),
        ("output = 4.0", "output = 4.0, rates = [{ from = \"soon\" }]", "is neither a day"),
        ("limit = \"5%\"", "limit = 5.5", "a number of rows, a share as \"5%\""),
        ("limit = \"5%\"", "limit = \"0%\"", "above 0% and at most 100%"),
        ("limit = \"5%\"", "limit = \"101%\"", "above 0% and at most 100%"),
        ("limit = \"5%\"", "limit = \"NaN%\"", "above 0% and at most 100%"),
        ("limit = \"5%\"", "limit = \"five\"", "`five` is not a limit"),
        ("attempts = 4", "attempts = 0", "must be 1 or more"),
        ("since = \"2026-01-01\"", "since = [1]", "must be text, a number"),
        ("on_lost = \"fail\"", "on_lost = \"retry\"", "`retry` is not a value of `on_lost`"),
        ("then = \"RETRY\"", "then = \"AGAIN\"", "`AGAIN` is not a value of"),
        ("provider = \"scripted\"", "provider = \"gpt\"", "`gpt` is not a value of"),
        ("key = \"po_line_id\"", "key = \" \"", "`candidates.key` is empty"),
        ("command = [\"./notify.sh\", \"--now\"]", "command = \"./notify.sh\"", "a list of words"),
        ("command = [\"./notify.sh\", \"--now\"]", "command = []", "names no program"),
        ("\"./notify.sh\"", "\"./nothing.sh\"", "there is no file ./nothing.sh"),
        ("http = \"http://alerts", "http = \"alerts", "is not a web address"),
        ("always = \"INSERT", "always = 1 # INSERT", "SQL in quotes or { sql"),
        ("always = \"INSERT", "always = \" ; -- INSERT", "has no statement in it"),
    ] {
        mistake(FULL, right, wrong, 0, message, "");
    }
}

#[test]
fn what_makes_no_sense_together_is_refused() {
    for (right, wrong, below, message, hint) in [
        ("key =", "sql_file = \"candidates.sql\"\nkey =", 0, "exclude each other", "leave one"),
        ("prompt_file =", "prompt = \"?\"\nprompt_file =", 1, "exclude each other", "leave one"),
        ("[completion]", "[completion]\nhttp = \"http://x\"", 1, "exclude each other", "leave one"),
        ("[pre.lists]", "code = \"x\"\n[pre.lists]", 0, "exclude each other", "leave one"),
        ("{ sql = \"DELETE", "{ sql = \"DELETE FROM x; DELETE", 0, "`rows` is for one statement", ""),
        ("then = \"RETRY\"", "then = \"FAIL\"", 2, "`after` is for a rule", ""),
        ("history =", "row =", 0, "a list cannot be called `row`", "the row itself"),
        ("since =", "sinse =", 0, "has no parameter `:sinse`", "did you mean `since`?"),
        (":since;", ":since; SELECT 1", 0, "must be one statement", ""),
        ("output = 4.0", "output = 4.0, tiers = [{ input = 1 }]", 0, "a tier needs `above`", ""),
        ("output = 4.0", "output = 4.0, tiers = [{ abov = 1 }]", 0, "`abov` in", "mean `above`?"),
        ("output = 4.0", "output = 4.0, batch = 0.5, batch_input = 1", 0, "exclude each other", ""),
        (
            "output = 4.0",
            "output = 4.0, rates = [{ from = 2026-02-01, until = 2026-01-01, input = 1, output = 1 }]",
            0,
            "ends (2026-01-01T00:00:00.000Z) before it begins",
            "",
        ),
        ("provider = \"scripted\"", "provider = \"echo\"", 2, "only a scripted profile", ""),
        ("profile = \"reviewer\"", "profile = \"reviwer\"", 0, "no profile `reviwer`", "`reviewer`?"),
        ("profile = \"reviewer\"", "profile = \"zzz\"", 0, "no profile `zzz`", "echo, reviewer"),
        ("sqlite:orders.db", "orders.db", 0, "is not a URL", "sqlite:orders.db"),
        ("sqlite:orders.db", "sqlight:orders.db", 0, "unknown kind of database", "`sqlite`?"),
        ("sqlite:orders.db", "sqlite::memory:", 0, "names no file", ""),
        ("sqlite:orders.db", "env:", 0, "nothing follows `env:`", ""),
        ("sqlite:orders.db", "postgres://me:pw@db/x", 0, "contains a password", "env:NAME"),
        ("seed = \"seed.sql\"", "seed = \"sead.sql\"", 0, "there is no file sead.sql", ""),
        ("database = \"sqlite:orders.db\"", "database = \"env:URL\"", 1, "only create a SQLite", ""),
        ("tenant = \"acme\"", "tenant = \"ac me\"", 0, "may only hold letters", ""),
        ("type = \"po-review\"", "type = \"po review\"", 0, "may only hold letters", ""),
        ("\"prompt.md\"", "\"none.md\"", 0, "there is no such file", ""),
        ("[retry]\nattempts", "[retry]\ncap = \"1s\"\n[x]\nattempts", 2, "unknown key `x`", ""),
    ] {
        mistake(FULL, right, wrong, below, message, hint);
    }
}

#[test]
fn a_wait_that_ends_before_it_begins_is_refused() {
    let text = format!("{SMALL}\n[retry]\nbase = \"10s\"\ncap = \"1s\"\n");
    let error = read(&text).unwrap_err();
    assert_eq!(error.message, "`retry.cap` is shorter than `retry.base`");
    assert_eq!(error.line, Some(text.lines().position(|line| line == "[retry]").unwrap() + 1));
}

#[test]
fn what_is_missing_is_named() {
    for (left_out, message, hint) in [
        ("type = \"small\"", "`type` is missing", ""),
        ("key = \"id\"", "`candidates.key` is missing", ""),
        ("sql = \"SELECT id FROM t\"", "`candidates.sql` is missing", ""),
        ("sql = \"SELECT * FROM t WHERE id = :key\"", "`pre.sql` is missing", ""),
        ("prompt = \"{{ id }}?\"", "`pre.prompt` is missing", "`prompt_file`"),
        ("profile = \"echo\"", "`ai.profile` is missing", "expected one of: echo"),
        ("[ai]\nprofile = \"echo\"", "section [ai] is missing", ""),
        ("[candidates]\nsql = \"SELECT id FROM t\"\nkey = \"id\"", "[candidates] is missing", ""),
    ] {
        assert!(SMALL.contains(left_out));
        let error = read(&SMALL.replace(left_out, "")).unwrap_err();
        assert!(error.message.contains(message), "{error}");
        assert!(error.hint.as_deref().unwrap_or_default().contains(hint), "{error:?}");
    }
    for (section, message) in [
        ("[completion]\n", "[completion] is empty"),
        ("[profiles.p]\nprovider = \"scripted\"\n", "`profiles.p.script` is missing"),
        ("[profiles.p]\n", "`profiles.p.provider` is missing"),
        ("[[post.rules]]\nwhen = \"1\"\n", "`post.rules[0].then` is missing"),
    ] {
        let error = read(&format!("{SMALL}\n{section}")).unwrap_err();
        assert!(error.message.contains(message), "{error}");
        assert!(error.line.is_some(), "{error}");
    }
}

#[test]
fn what_is_not_toml_is_refused_at_its_line() {
    for (right, wrong, below) in [
        ("workers = 8", "workers = ", 0),
        ("workers = 8", "workers = 8\nworkers = 9", 1),
        ("[pre]", "[pre", 0),
        ("[retry]", "[post]\n[retry]", 0),
        ("on_lost = \"fail\"", "on_lost = fail", 0),
    ] {
        mistake(FULL, right, wrong, below, "", "");
    }
}

#[test]
fn a_parameter_must_be_known_and_have_a_value() {
    let error = load(folder(FULL).path(), &with_params(&[("sinc", "x")])).unwrap_err();
    assert_eq!(error.message, "--param sinc: the candidates' SQL has no `:sinc`");
    assert_eq!(error.hint.as_deref(), Some("did you mean `since`?"));
    let error = read(&FULL.replace("since = \"2026-01-01\"", "")).unwrap_err();
    assert_eq!(error.message, "parameter `:since` has no value");
    assert!(error.hint.unwrap().contains("--param since="));
    assert_eq!(error.line, Some(11));
}

#[test]
fn mistakes_in_other_files_are_told_there() {
    let dir = folder(FULL);
    std::fs::write(dir.path().join("verdict.schema.json"), "{\n\"properties\": }").unwrap();
    let error = load(dir.path(), &noon()).unwrap_err();
    assert!(error.file.ends_with("verdict.schema.json"), "{error}");
    assert_eq!(error.line, Some(2));
    std::fs::write(dir.path().join("prompt.md"), b"one\ntwo \xff\n").unwrap();
    let error = load(dir.path(), &noon()).unwrap_err();
    assert!(error.file.ends_with("prompt.md"), "{error}");
    assert_eq!((error.line, error.message.as_str()), (Some(2), "the file is not valid UTF-8"));
    std::fs::write(dir.path().join("prompt.md"), " \n").unwrap();
    assert_eq!(load(dir.path(), &noon()).unwrap_err().message, "the file is empty");
}

#[test]
fn a_file_that_cannot_be_one_is_refused() {
    let dir = folder("");
    let of = |name: &str| load(&dir.path().join(name), &noon()).unwrap_err();
    assert_eq!(of("batch.toml").message, "the file is empty");
    assert_eq!(of("nothing.toml").message, "there is no such file");
    std::fs::write(dir.path().join("bad.toml"), b"type = \"a\"\nb = \"\xc3\x28\"").unwrap();
    assert_eq!(of("bad.toml").line, Some(2));
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    assert_eq!(of("empty").message, "there is no batch.toml in this folder");
    std::fs::create_dir(dir.path().join("empty/batch.toml")).unwrap();
    assert_eq!(of("empty").message, "this is not a file");
    assert_eq!(load(std::path::Path::new("/dev/zero"), &noon()).unwrap_err().message, "this is not a file");
}

#[test]
fn a_huge_file_is_refused_unread() {
    let dir = folder(SMALL);
    let huge = std::fs::File::create(dir.path().join("batch.toml")).unwrap();
    huge.set_len(100 * 1024 * 1024).unwrap();
    let error = load(dir.path(), &noon()).unwrap_err();
    assert_eq!(error.message, "the file is larger than 2 MB");
}

#[test]
fn a_path_that_is_not_text_is_refused() {
    let dir = folder(SMALL);
    let odd = dir.path().join(std::ffi::OsStr::from_bytes(b"odd\xff.toml"));
    std::fs::write(&odd, SMALL).unwrap();
    assert!(load(&odd, &noon()).unwrap_err().message.contains("not valid UTF-8"));
}

#[test]
fn an_error_reads_as_a_sentence_with_its_place() {
    let mut error = read(&SMALL.replace("key =", "kee =")).unwrap_err();
    error.file = "batch.toml".into();
    assert_eq!(error.to_string(), "batch.toml, line 5: unknown key `kee` in [candidates]");
    error.line = None;
    assert_eq!(error.to_string(), "batch.toml: unknown key `kee` in [candidates]");
}

#[test]
fn a_password_in_an_unknown_url_is_not_repeated() {
    let error = read(&format!("database = \"oracle://me:secret@host\"\n{SMALL}")).unwrap_err();
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused_at_one_of_its_lines(
        lines in proptest::collection::vec(
            r#"\[(ai|pre|post|candidates|retry|profiles\.x|post\.rules)\]|\[\[post\.rules\]\]|(type|sql|key|limit|prompt|profile|after|when|success) = ("[a-z;:' %]{0,6}"|[0-9]{1,3}|\[\]|\{\})|\PC{0,12}"#,
            0..12,
        ),
    ) {
        if let Err(error) = read(&lines.join("\n")) {
            let line = error.line.unwrap_or(1);
            proptest::prop_assert!((1..=lines.len().max(1)).contains(&line), "{}", error);
        }
    }
}

#[test]
fn a_profile_that_asks_somebody_is_read_with_care() {
    let real = "[profiles.p]\nprovider = \"openai\"\nmodel = \"m\"\n";
    for (wrong, message, hint) in [
        ("key = \"sk-proj-0123456789\"", "looks like a secret", "env:NAME"),
        ("wire = { samplign = true }", "unknown key `samplign` in [profiles.p.wire]", "`sampling`?"),
        ("limits = { requests = \"many\" }", "`profiles.p.limits.requests`: invalid type", ""),
        ("delay = \"1s\"", "`profiles.p.delay` does not apply to provider openai", ""),
        ("endpiont = \"http://x\"", "unknown key `endpiont`", "endpoint"),
    ] {
        let error = read(&format!("{SMALL}\n{real}{wrong}\n")).unwrap_err();
        assert!(error.message.contains(message), "{error}");
        assert!(error.hint.as_deref().unwrap_or_default().contains(hint), "{error:?}");
        assert!(error.line.is_some() && !error.to_string().contains("0123456789"), "{error}");
    }
    for (section, message) in [
        ("[profiles.p]\nprovider = \"openai\"\n", "`profiles.p.model` is missing"),
        ("[profiles.p]\nprovider = \"echo\"\nkey = \"k\"\n", "does not apply to provider echo"),
    ] {
        let error = read(&format!("{SMALL}\n{section}")).unwrap_err();
        assert!(error.message.contains(message), "{error}");
    }
}

#[test]
fn only_the_tenants_own_profiles_are_asked_through_the_queue() {
    let text = SMALL.replace("profile = \"echo\"", "profile = \"echo\"\nthrough = \"queue\"");
    let error = read(&text).unwrap_err();
    assert!(error.message.contains("through the queue"), "{error}");
    assert!(error.hint.as_deref().unwrap_or_default().contains("@NAME"), "{error:?}");
    let error = read(&SMALL.replace("\"echo\"", "\"@no such\"")).unwrap_err();
    assert!(error.line.is_some(), "{error}");
}

#[test]
fn a_provider_without_batches_is_not_asked_for_them() {
    let with = |ai: &str| SMALL.replace("profile = \"echo\"", ai);
    for (ai, message) in [
        ("profile = \"echo\"\nmode = \"provider-batch\"", "`echo` has no batch API"),
        ("profile = \"@a\"\nthrough = \"queue\"\nmode = \"provider-batch\"", "through the queue"),
        ("profile = \"@a\"\nmode = \"provider_batch\"", "provider-batch"),
        ("profile = \"@a\"\nprovider_batch = { look = \"1s\" }", "mode = \"provider-batch\""),
    ] {
        let error = read(&with(ai)).unwrap_err();
        let text = format!("{error} {}", error.hint.clone().unwrap_or_default());
        assert!(text.contains(message) && error.line.is_some(), "{text}");
    }
}

#[test]
fn addresses_of_the_mail_at_the_end_are_checked_when_the_file_is_read() {
    let mail = |from: &str, to: &str| format!("[completion]\nmail = {{ from = \"{from}\", to = {to} }}\n");
    let good = mail("Night run <night@example.com>", "[\"ops@example.com\", \"a@b\"]");
    let end = SMALL.to_owned() + &good;
    read(&end).unwrap();
    for (from, to, message, hint) in [
        ("night", "\"ops@example.com\"", "from`: `night` is not a mail address", "name@example.com"),
        ("n@x.de", "\"ops@\"", "to`: `ops@` is not a mail address", "name@example.com"),
        ("n@x.de", "\"a@x.de, b@x.de\"", "`a@x.de, b@x.de` is not a mail address", "as a list"),
        ("n@x.de", "[\"a@x.de\", \"b x.de\"]", "`b x.de` is not a mail address", "name@example.com"),
    ] {
        mistake(&end, &good, &mail(from, to), 1, message, hint);
    }
}
