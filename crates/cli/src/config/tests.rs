//! The parser, and its agreement with `longshore.reference.toml`.

use super::*;

const REFERENCE: &str = include_str!("../../../../longshore.reference.toml");

/// The keys of a section as the parser lists them for an unknown one; none for a map.
fn keys(section: &str) -> Vec<String> {
    let header = if section.is_empty() { String::new() } else { format!("[{section}]\n") };
    match toml::from_str::<Config>(&format!("{header}\"?\" = 0\n")) {
        Err(error) if error.message().starts_with("unknown field `?`") => {
            error.message().split('`').skip(3).step_by(2).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

/// Every key of `section` is written there, in its subsections, too.
fn assert_complete(written: &Table, section: &str) {
    for key in keys(section) {
        let path = if section.is_empty() { key.clone() } else { format!("{section}.{key}") };
        let value = written.get(&key);
        let value = value.unwrap_or_else(|| panic!("{path} is not in the reference file"));
        if let Value::Table(table) = value {
            assert_complete(table, &path);
        }
    }
}

#[track_caller]
fn assert_same(one: &impl std::fmt::Debug, other: &impl std::fmt::Debug) {
    assert_eq!(format!("{one:#?}"), format!("{other:#?}"));
}

#[test]
fn the_reference_file_names_every_key_with_its_default() {
    let written = parse(REFERENCE, "longshore.reference.toml").unwrap();
    assert!(keys("").contains(&"worker".to_owned()) && keys("mail.smtp").len() > 5);
    assert_complete(&written, "");
    assert_same(&written.try_into::<Config>().unwrap(), &Config::default());
}

/// A section named by the user is documented there as a comment.
fn commented(section: &str) -> Table {
    let from = REFERENCE.lines().skip_while(|line| *line != format!("# [{section}]"));
    let text: String = from
        .take_while(|line| line.starts_with('#'))
        .filter_map(|line| line.strip_prefix("# "))
        .filter(|line| line.starts_with('[') || line.contains(" = "))
        .map(|line| format!("{line}\n"))
        .collect();
    parse(&text, "longshore.reference.toml").unwrap()
}

/// The commented section, which must name every key.
fn complete(section: &str) -> Config {
    let table = commented(section);
    let written = section.split('.').try_fold(&table, |table, key| table[key].as_table());
    assert_complete(written.unwrap(), section);
    table.try_into().unwrap()
}

#[test]
fn the_reference_file_names_every_key_of_a_worker_process_with_its_default() {
    let mut config = complete("workers.images");
    let mut written = config.workers.remove("images").unwrap();
    assert!(!std::mem::take(&mut written.command).is_empty());
    assert_same(&written, &WorkerProcessConfig::default());
}

#[cfg(feature = "standard")]
#[test]
fn the_reference_file_names_every_key_of_what_is_kept_alive_with_its_default() {
    let mut config = complete("supervise.workers.mail");
    let mut written = config.supervise.workers.remove("mail").unwrap();
    assert_eq!(std::mem::take(&mut written.kinds)[0].as_str(), "mail");
    assert_same(&written, &SupervisedConfig::default());
}

#[test]
fn the_reference_file_names_every_key_of_a_bounded_pool_with_two_examples() {
    let full = complete("pools.mjml").pools.into_values().next().unwrap();
    let wait = Duration::from_secs(30);
    assert_same(&full, &BoundedPoolConfig { max: 20, wait, ..BoundedPoolConfig::default() });
    let short: Config = commented("pools.digest").try_into().unwrap();
    let waits_for_ever = BoundedPoolConfig { max: 10, ..BoundedPoolConfig::default() };
    assert_same(&short.pools.into_values().next().unwrap(), &waits_for_ever);
}

#[test]
fn a_list_of_workers_is_told_where_it_belongs() {
    let error = parse("[[worker]]\nkinds = [\"mail\"]\n", "t").unwrap_err();
    let shown = format!("{error:#}");
    assert!(shown.contains("[[worker]] is a list"), "{shown}");
}

#[test]
fn every_variable_stands_for_a_key_and_is_in_the_reference_file() {
    for var in env::VARS {
        let (section, key) = var.key.split_once('.').unwrap_or(("", var.key));
        let known = keys(section);
        // The quickstart build ignores some sections.
        let ignored = !cfg!(feature = "standard") && known.is_empty();
        assert!(ignored || known.iter().any(|known| known == key), "{}", var.key);
        assert!(REFERENCE.contains(var.name), "{} is not documented", var.name);
    }
}

#[test]
fn an_unknown_key_is_refused_with_line_and_suggestion() {
    let text = "store = \"sqlite:x.db\"\n\n[worker]\nslot = 3\n";
    let error = format!("{:#}", parse(text, "longshore.toml").unwrap_err());
    assert!(error.contains("longshore.toml, line 4"), "{error}");
    assert!(error.contains("did you mean `slots`?"), "{error}");
}

#[test]
fn a_bad_value_is_refused_with_line_key_and_hint() {
    for (text, line, message, hint) in [
        ("[worker]\nttl = \"soon\"\n", 2, "`worker.ttl`: `soon` is not a length of time", "key"),
        ("[pools.a]\nmax = 1\nlease = 0\n", 3, "`pools.a.lease`: must be longer than zero", "key"),
        ("store = \"x.db\"\n", 1, "`store`: store `x.db` is not a URL", "`sqlite:x.db`?"),
        ("[worker]\nqueues = [\"a\", \"b c\"]\n", 2, "`worker.queues`: ", "key"),
        ("[worker]\nqueues = \"a\"\n", 2, "`worker.queues`: invalid type", "a list is written"),
        ("[sqlite]\nsynchronous = \"ful\"\n", 2, "did you mean `full`?", "key"),
        ("[sqlite]\nsynchronous = \"ful\"\n", 2, "`sqlite.synchronous` (full, normal)", "key"),
    ] {
        let error = parse(text, "t").unwrap_err();
        let shown = format!("{error:#}");
        assert!(shown.starts_with(&format!("in t, line {line}: ")), "{shown}");
        assert!(shown.contains(message), "{shown}");
        let given = crate::error::hint(&error).unwrap();
        assert!(given.contains(hint), "{given}");
    }
}

#[test]
fn a_variable_overrides_its_key_and_nothing_else() {
    let mut table = parse("[worker]\nslots = 3\nttl = \"9s\"\n", "t").unwrap();
    let var = |key| env::VARS.into_iter().find(|var| var.key == key).unwrap();
    apply_variable(&mut table, var("worker.slots"), "5").unwrap();
    apply_variable(&mut table, var("worker.queues"), "a, b").unwrap();
    apply_variable(&mut table, var("tenant"), "7").unwrap();
    assert!(apply_variable(&mut table, var("worker.slots"), "many").is_err());
    let config: Config = table.try_into().unwrap();
    assert_eq!((config.worker.slots, config.worker.ttl), (5, Duration::from_secs(9)));
    let queues: Vec<_> = config.worker.queues.iter().map(longshore::QueueName::as_str).collect();
    assert_eq!(queues, ["a", "b"]);
    assert_eq!(config.tenant.unwrap().as_str(), "7");
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_its_line_is_named(
        lines in proptest::collection::vec(
            r#"\[(worker|log|keep|x)\]|(slots|ttl|level|[a-z]{1,3}) ?= ?["0-9a-z\[\]]{0,5}|\PC*"#,
            0..6,
        ),
    ) {
        if let Err(error) = parse(&lines.join("\n"), "t") {
            let error = format!("{error:#}");
            let line = error.strip_prefix("in t, line ").and_then(|at| at.split(':').next());
            let line: usize = line.expect(&error).parse().expect(&error);
            proptest::prop_assert!((1..=lines.len().max(1)).contains(&line), "{}", error);
        }
    }

    #[test]
    fn any_value_of_a_variable_is_taken_or_the_key_named(text: String) {
        for var in env::VARS {
            if let Err(error) = apply_variable(&mut Table::new(), var, &text) {
                let words = format!("{error:#}");
                proptest::prop_assert!(words.contains(var.key), "{}", words);
            }
        }
    }
}
