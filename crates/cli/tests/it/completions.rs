//! Completions and manual pages name every command.

use std::process::{Command, Stdio};

use crate::support::{CliOutput, TestDir};

/// The names of the subcommands below these words, as the help lists them.
fn commands(dir: &TestDir, words: &[&str]) -> Vec<String> {
    let help = dir.run(&[words, &["--help"]].concat()).ok().out;
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    // A line that is indented further continues the line before.
    let lines = lines.filter(|line| !line.starts_with("   "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_shell_gets_completions_that_name_every_command() {
    let dir = TestDir::new();
    let verbs = commands(&dir, &[]);
    assert!(verbs.len() > 8, "{verbs:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = dir.run(&["completions", shell]).ok().out;
        for verb in &verbs {
            assert!(script.contains(verb.as_str()), "{shell} does not know `{verb}`");
        }
    }
    dir.run(&["completions", "tcsh"]).ends(2);
}

#[test]
fn bash_can_read_its_completions_and_completes_a_command() {
    let dir = TestDir::new();
    let script = dir.run(&["completions", "bash"]).ok().out;
    let file = dir.write("completions.bash", script);
    let check = Command::new("bash").arg("-n").arg(&file).stderr(Stdio::piped()).spawn();
    assert_eq!(CliOutput::of(check.unwrap()).ok().err, "");
    let complete = "source completions.bash
        COMP_WORDS=(longshore que) COMP_CWORD=1
        _longshore longshore que longshore
        echo \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["-c", complete]).current_dir(dir.path(""));
    let bash = bash.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(CliOutput::of(bash).ok().out, "queue\n");
}

#[test]
fn every_command_has_a_manual_page_which_its_parent_names() {
    let dir = TestDir::new();
    dir.run(&["man", "--out", "pages/man1"]).ok();
    let page = |words: &[&str]| {
        let name = [&["longshore"], words].concat().join("-");
        dir.read(&format!("pages/man1/{name}.1")).replace('\\', "")
    };
    let whole = page(&[]);
    assert!(whole.contains("Log into daily files"), "what the short help leaves out: {whole}");
    for verb in commands(&dir, &[]) {
        assert!(whole.contains(&format!("longshore-{verb}(1)")), "{verb}");
        let of_verb = page(&[&verb]);
        assert!(of_verb.contains(".SH SYNOPSIS"), "{verb}: {of_verb}");
        for below in commands(&dir, &[&verb]) {
            let name = format!("longshore-{verb}-{below}(1)");
            assert!(of_verb.contains(&name), "{name} is not in {of_verb}");
            assert!(page(&[&verb, &below]).contains(".SH SYNOPSIS"), "{name}");
        }
    }
    let files = std::fs::read_dir(dir.path("pages/man1")).unwrap();
    let names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    assert!(names.len() > 20, "{names:?}");
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("reaper")));
}

#[test]
fn one_page_can_be_printed() {
    let dir = TestDir::new();
    assert!(dir.run(&["man"]).ok().out.contains(".TH longshore 1"));
    let page = dir.run(&["man", "batch", "run"]).ok().out;
    assert!(page.contains(".TH longshore-batch-run 1"), "{page}");
    let page = dir.run(&["man", "worker"]).ok().out.replace('\\', "");
    let example = "\n  longshore worker --slots 8 --until-idle ";
    assert!(page.contains(".nf") && page.contains(example), "examples keep their lines: {page}");
    dir.run(&["man", "quue"]).ends(2).says("did you mean `queue`?");
}

#[test]
fn a_bad_configuration_is_not_in_their_way() {
    let dir = TestDir::new();
    dir.write("longshore.toml", "[worker]\nslot = 3\n");
    dir.run(&["queue", "list"]).ends(1);
    dir.run(&["completions", "bash"]).ok();
    dir.run(&["man"]).ok();
}
