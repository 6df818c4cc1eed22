//! The order of settings: flags over environment over file over defaults.

use crate::support::TestDir;

#[test]
fn an_unknown_key_is_refused_with_file_line_and_suggestion() {
    let dir = TestDir::new();
    dir.write("longshore.toml", "[worker]\n\nslot = 3\n");
    let run = dir.run(&["queue", "list"]).ends(1);
    run.says("longshore.toml, line 3").says("did you mean `slots`?");
}

#[test]
fn a_flag_overrides_a_variable_and_a_variable_the_file() {
    let dir = TestDir::new();
    let file = dir.write("my.toml", "store = \"sqlite:file.db\"\n");
    let run = |var: Option<&str>, flag: Option<&str>| {
        let mut args = vec!["queue", "list"];
        args.extend(flag.iter().flat_map(|flag| ["--store", flag]));
        let mut command = dir.command(&args);
        command.env("LONGSHORE_CONFIG", &file);
        var.map(|var| command.env("LONGSHORE_STORE", var));
        assert!(command.status().unwrap().success());
    };
    run(None, None);
    assert!(dir.path("file.db").exists() && !dir.path("var.db").exists());
    run(Some("sqlite:var.db"), None);
    assert!(dir.path("var.db").exists() && !dir.path("flag.db").exists());
    std::fs::remove_file(dir.path("var.db")).unwrap();
    run(Some("sqlite:var.db"), Some("sqlite:flag.db"));
    assert!(dir.path("flag.db").exists() && !dir.path("var.db").exists());
}

#[test]
fn bad_values_are_named_by_where_they_stand() {
    let dir = TestDir::new();
    let with = |name: &str, value: &str| {
        let output = dir.command(&["queue", "list"]).env(name, value).output().unwrap();
        assert!(!output.status.success(), "{name}={value}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(with("LONGSHORE_SLOTS", "many").contains("LONGSHORE_SLOTS"));
    assert!(with("LONGSHORE_TTL", "soon").contains("worker.ttl"));
    assert!(with("LONGSHORE_SQLITE_SYNCHRONOUS", "ful").contains("did you mean `full`?"));
    assert!(with("LONGSHORE_CONFIG", "nowhere.toml").contains("nowhere.toml"));
    assert!(with("LONGSHORE_LOG", "=x=").contains("log level"));
}

#[test]
fn logs_go_into_daily_files_as_json_when_asked() {
    let dir = TestDir::new();
    let args = ["worker", "--until-idle", "--slots", "1", "--log-dir", "logs", "--log-format", "json"];
    dir.run(&args).ok();
    let files: Vec<_> = std::fs::read_dir(dir.path("logs")).unwrap().collect();
    let file = files[0].as_ref().unwrap().path();
    assert!(file.to_string_lossy().ends_with(".log"));
    let text = std::fs::read_to_string(file).unwrap();
    assert!(!text.is_empty());
    for line in text.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}
