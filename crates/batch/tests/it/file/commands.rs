//! PRE and POST by commands in batch files.

use std::time::Duration;

use longshore_batch::definition::{CommandSpec, Post, Pre};

use super::{SMALL, folder, load, noon, read};

const PRE_SQL: &str = "sql = \"SELECT * FROM t WHERE id = :key\"\nprompt = \"{{ id }}?\"";

/// The small file with a command for PRE, followed by `post`.
fn with(pre: &str, post: &str) -> String {
    assert!(SMALL.contains(PRE_SQL));
    SMALL.replace(PRE_SQL, pre) + post
}

#[test]
fn pre_and_post_may_be_commands() {
    let pre = "command = [\"python3\", \"a.py\", \"-v\"]\nmin = 1\nmax = 2\ntimeout = \"5s\"\n\
               start_timeout = \"9s\"\nsql = \"SELECT 1 WHERE :key\"\nlists = { l = \"SELECT 2\" }";
    let dir = folder(&with(pre, "\n[post]\ncommand = [\"./b.sh\"]\nrow_sql = \"SELECT 3\"\n"));
    std::fs::write(dir.path().join("b.sh"), "").unwrap();
    let loaded = load(dir.path(), &noon()).unwrap();
    let here = dir.path().canonicalize().unwrap();
    let Pre::Command(pre) = &loaded.definition.pre else { panic!("{:?}", loaded.definition.pre) };
    let expected = CommandSpec {
        argv: ["python3", "a.py", "-v"].map(str::to_owned).to_vec(),
        dir: here.display().to_string(),
        min: 1,
        max: 2,
        timeout: Duration::from_secs(5),
        start_timeout: Duration::from_secs(9),
    };
    assert_eq!(pre.command, expected);
    assert_eq!((pre.sql.as_deref(), pre.lists["l"].as_str()), (Some("SELECT 1 WHERE :key"), "SELECT 2"));
    let Post::Command(post) = &loaded.definition.post else { panic!() };
    let program = here.join("./b.sh").display().to_string();
    assert_eq!(post.command, CommandSpec::new(vec![program], here.display().to_string()));
    assert_eq!(post.row_sql.as_deref(), Some("SELECT 3"));
    for key in ["pre.command", "pre.sql", "post.command", "post.row_sql"] {
        assert!(loaded.source_map.find(key).is_some(), "{key}");
    }
}

#[test]
fn what_does_not_go_with_a_command_is_refused() {
    let command = "command = [\"python3\"]";
    for (pre, post, words) in [
        (format!("{command}\nprompt = \"?\""), "", "`pre.prompt` and `pre.command` exclude"),
        (format!("{command}\ncode = \"x\""), "", "`pre.command` and `pre.code` exclude"),
        (format!("{command}\nlists = {{ l = \"SELECT 1\" }}"), "", "`pre.lists` without `pre.sql`"),
        (format!("{PRE_SQL}\nmax = 3"), "", "`pre.max` is for a `command`"),
        (format!("{command}\nmin = 5"), "", "`pre.min` is above `max`, 4"),
        (format!("{command}\nmax = 0"), "", "`pre.max` must be 1 or more"),
        (format!("{command}\ntimeout = \"0s\""), "", "`pre.timeout` must be longer than zero"),
        ("command = \"python3\"".into(), "", "`pre.command` must be a list of words"),
        ("command = []".into(), "", "`pre.command` names no program"),
        ("command = [\"./none\"]".into(), "", "there is no file ./none"),
        (command.into(), "success = \"DELETE FROM t\"", "`post.success` and `post.command` exclude"),
        (command.into(), "skip = \"DELETE FROM t\"", "`post.skip` and `post.command` exclude"),
    ] {
        let post = match post {
            "" => String::new(),
            post => format!("\n[post]\n{command}\n{post}\n"),
        };
        let error = read(&with(&pre, &post)).unwrap_err();
        assert!(error.message.contains(words), "{pre}: {error}");
        assert!(error.line.is_some(), "{error}");
    }
    let error = read(&format!("{SMALL}\n[post]\nrow_sql = \"SELECT 1\"\n")).unwrap_err();
    assert!(error.message.contains("`post.row_sql` is for a `command`"), "{error}");
}

#[test]
fn a_definition_with_commands_is_kept_and_read_back() {
    let text = with("command = [\"python3\", \"a.py\"]", "\n[post]\ncommand = [\"python3\", \"a.py\"]\n");
    let definition = read(&text).unwrap().definition;
    let kept = serde_json::to_string(&definition).unwrap();
    assert_eq!(serde_json::from_str::<longshore_batch::Definition>(&kept).unwrap(), definition);
}

/// Definitions stored before `skip` existed.
#[test]
fn a_definition_without_skips_is_still_read() {
    let definition = read(SMALL).unwrap().definition;
    let mut kept = serde_json::to_value(&definition).unwrap();
    kept["post"]["sql"].as_object_mut().unwrap().remove("skip").unwrap();
    assert_eq!(serde_json::from_value::<longshore_batch::Definition>(kept).unwrap(), definition);
}
