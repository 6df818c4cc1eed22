//! What can be submitted beside a file: commands, scripts from stdin, snapshots; and the options that a
//! script brings itself.

use serde_json::json;

use super::fixture::PoolFixture;

#[test]
fn a_command_runs_with_its_words_as_they_are() {
    let pool = PoolFixture::start(&["--nthr", "2"]);
    let args = ["submit", "--wait", "--", "printf", "%s|", "a b", "$HOME", "", "--nthr", "*"];
    assert_eq!(pool.run(&args).ok().out, "a b|$HOME||--nthr|*|");
    assert_eq!(pool.run(&["submit", "--wait", "--", "sh", "-c", "exit 7"]).code, 3);
    let missing = pool.run(&["submit", "--wait", "--", "no-such-program"]);
    assert!(missing.err.contains("exit code 127"), "{}", missing.err);
    // With the options of scripts.
    let array = [
        "submit",
        "--array",
        "1-3",
        "--name",
        "cmd",
        "--wait",
        "--",
        "sh",
        "-c",
        "echo $LONGSHORE_ARRAY_INDEX",
    ];
    pool.run(&array).ok();
    assert_eq!(pool.run(&["batch", "cat", "cmd"]).ok().out, "1\n2\n3\n");
    std::fs::create_dir(pool.dir.path("below")).unwrap();
    let cwd = pool.run(&["submit", "--cwd", "below", "--wait", "--", "pwd"]).ok().out;
    assert!(cwd.trim_end().ends_with("/below"), "{cwd}");
    let wrong = pool.run(&["submit", "--cwd", "nowhere", "--", "pwd"]);
    assert!(wrong.code == 2 && wrong.err.contains("there is no such folder"), "{}", wrong.err);
    let shown = pool.run(&["unit", "list", "--json"]).ok().json();
    assert!(shown.as_array().unwrap().iter().any(|unit| unit["name"] == "printf"), "{shown}");
    pool.stop();
}

#[test]
fn a_script_comes_from_stdin_or_as_a_snapshot() {
    let pool = PoolFixture::start(&["--nthr", "1"]);
    let stdin = |args: &[&str], text: &str| {
        pool.dir.write("input", text);
        let mut command = pool.command(&[&["submit", "--script", "-"], args].concat());
        command.stdin(std::fs::File::open(pool.dir.path("input")).unwrap());
        crate::support::CliOutput::of(command.spawn().unwrap())
    };
    let text = "#!/bin/bash\n#LONGSHORE --name piped --env WORD=hello\ncat; echo \"$0 $1 $WORD $LONGSHORE_NAME\"\nexit 3\n";
    let ran = stdin(&["--wait", "--", "x y"], text);
    assert_eq!((ran.code, ran.out.as_str()), (3, "stdin x y hello piped\n"), "{}", ran.err);
    let empty = stdin(&[], "\n");
    assert!(empty.code == 2 && empty.err.contains("stdin is empty"), "{}", empty.err);

    // Both wait until the file has changed.
    let gate = pool.unit("gate.sh", "until [ -e go ]; do sleep 0.05; done", &[]);
    let old = "echo old from ${0##*/}";
    let snapshot = pool.unit("job.sh", old, &["--snapshot", "--after", &gate]);
    let file = pool.unit("job.sh", old, &["--after", &gate]);
    pool.dir.write("job.sh", "echo new");
    pool.dir.write("go", "");
    let out = |unit: &str| pool.run(&["unit", "wait", unit]).ok().out;
    assert_eq!((out(&snapshot).as_str(), out(&file).as_str()), ("old from job.sh\n", "new\n"));
    pool.dir.write("large.sh", "#".repeat(200_000));
    let large = pool.run(&["submit", "--script", "large.sh", "--snapshot"]);
    assert!(large.code == 2 && large.err.contains("200000 bytes, of 102400 at most"), "{}", large.err);
    pool.stop();
}

#[test]
fn a_script_brings_options_and_the_command_line_overrides_them() {
    let pool = PoolFixture::start(&["--nthr", "2", "--mem", "2GB"]);
    let text =
        "#!/bin/bash\n#LONGSHORE --nthr 2 --mem 500MB --time 1:30:00\n#LONGSHORE --resource tape=1\ntrue\n";
    let request = |more: &[&str]| {
        let unit = pool.unit("job.sh", text, more);
        pool.run(&["unit", "explain", &unit, "--json"]).ok().json()["request"].clone()
    };
    let asked = json!({"threads": 2, "resources": {"mem": 477, "tape": 1}, "time": 5400.0});
    assert_eq!(request(&[]), asked);
    let asked = json!({"threads": 1, "resources": {"mem": 477, "tape": 1}, "time": 60.0});
    assert_eq!(request(&["--nthr", "1", "--time", "1m"]), asked);
    pool.dir.write("bad.sh", "#LONGSHORE --nthrs 2\n");
    let bad = pool.run(&["submit", "--script", "bad.sh"]);
    assert!(
        bad.code == 2 && bad.err.contains("#LONGSHORE lines of") && bad.err.contains("--nthrs"),
        "{}",
        bad.err
    );
    pool.run(&["dispatch", "stop", "--now"]).ok();
}

#[test]
fn lines_reach_scripts_byte_for_byte_from_index_0() {
    let pool = PoolFixture::start(&["--nthr", "1"]);
    pool.dir.write("lines", " a \r\n\n$(b)\\\ttab\nlast without line feed");
    let text = "printf '%s=[%s]' \"$LONGSHORE_ARRAY_INDEX\" \"$LONGSHORE_LINE\"";
    pool.submit("job.sh", text, &["--each-line", "lines", "--name", "lines"]);
    pool.wait_until_idle();
    let all = pool.run(&["batch", "cat", "lines"]).ok().out;
    assert_eq!(all, "0=[ a \r]1=[]2=[$(b)\\\ttab]3=[last without line feed]");
    assert_eq!(pool.run(&["batch", "cat", "lines.3"]).ok().out, "3=[last without line feed]");
    pool.stop();
}
