//! Runs every command in README.md, docs/*.md, docs/guides/*.md and examples/*/README.md.
//!
//! Each ```` ```sh ```` block is a test of its own, named by file and line: a script in a fresh directory, with
//! the binary under test as `longshore`. Blocks that are not run are named in [`SKIPPED_BLOCKS`].

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test, but for the compiler a program: it has its own harness"
)]

#[path = "../it/support.rs"]
#[expect(dead_code, unreachable_pub, reason = "shared with tests/it, which uses all of it")]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use libtest_mimic::{Arguments, Trial};

use support::{CliOutput, TestDir};

/// The only blocks that are not run, by file and first line: blocks marked ```` ```sh no-run ````,
/// and blocks that only build and test this repository.
const SKIPPED_BLOCKS: [(&str, &str); 3] = [
    ("README.md", "./check"),
    ("docs/contributing.md", "./check"),
    ("docs/contributing.md", "bench/compare main queues -- --only throughput --units 20000"),
];

/// Languages that blocks may have beside `sh`. This test would not see a block of `bash` or
/// `console`.
const OTHER_LANGUAGES: [&str; 9] = ["", "js", "json", "python", "rust", "rust,ignore", "sql", "text", "toml"];

/// Command prefixes with which a reader runs the binary before it is installed.
const FROM_SOURCE: [&str; 2] = ["cargo run --release -- ", "cargo run -- "];

/// The command that `cargo quickstart` runs (`.cargo/config.toml`).
const QUICKSTART: &str = "longshore batch run examples/purchase-orders";

/// A fenced code block.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    /// The number of the opening fence's line, from 1.
    line: usize,
    /// The text after the opening fence.
    language: String,
    code: String,
}

impl Block {
    /// The code as a script, or `None` if the block is not run.
    fn script(&self) -> Option<String> {
        let lines: Vec<String> = self.code.lines().filter_map(substitute_binary).collect();
        let ours = ["./check", "./test", "cargo ", "bench/"];
        let builds = |line: &String| ours.iter().any(|ours| line.starts_with(ours));
        let left_out = self.language == "sh no-run" || lines.iter().all(builds);
        (!left_out).then(|| lines.join("\n"))
    }
}

/// Replaces the binary that a reader builds with the binary under test.
fn substitute_binary(line: &str) -> Option<String> {
    if line.starts_with("alias longshore=") || line.starts_with("cargo build ") {
        return None;
    }
    if line == "cargo quickstart" {
        return Some(QUICKSTART.to_owned());
    }
    let ours = FROM_SOURCE.iter().find_map(|cargo| line.strip_prefix(cargo));
    Some(ours.map_or_else(|| line.to_owned(), |rest| format!("longshore {rest}")))
}

fn blocks(text: &str) -> Vec<Block> {
    let (mut blocks, mut open) = (Vec::new(), None::<Block>);
    for (i, line) in text.lines().enumerate() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.code += &format!("{line}\n"),
            (None, Some(language)) => {
                let language = language.trim().to_owned();
                open = Some(Block { line: i + 1, language, code: String::new() });
            }
            (None, None) => {}
        }
    }
    assert_eq!(open, None, "unclosed block");
    blocks
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The entries of a folder of the repository, prefixed with the folder's name.
fn list_folder(dir: &str) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(root().join(dir)).unwrap();
    entries.map(move |entry| format!("{dir}/{}", entry.unwrap().file_name().display()))
}

/// README.md, docs/*.md, docs/guides/*.md and the examples' README.md, with their blocks of commands.
fn documents() -> Vec<(String, Vec<Block>)> {
    let pages = list_folder("docs").chain(list_folder("docs/guides"));
    let mut names: Vec<String> = pages.filter(|name| name.ends_with(".md")).collect();
    // Examples that a page of docs/ describes have no README of their own.
    let readmes = list_folder("examples").map(|example| format!("{example}/README.md"));
    names.extend(readmes.filter(|readme| root().join(readme).exists()));
    names.push("README.md".to_owned());
    names.sort();
    let read = |name: String| {
        let text = std::fs::read_to_string(root().join(&name)).unwrap();
        let (commands, others): (Vec<Block>, Vec<Block>) =
            blocks(&text).into_iter().partition(|block| block.language.starts_with("sh"));
        for block in others {
            let known = OTHER_LANGUAGES.contains(&block.language.as_str());
            assert!(known, "{name}:{}: write `{}` as `sh`", block.line, block.language);
        }
        (name, commands)
    };
    names.into_iter().map(read).collect()
}

/// Copies a folder as a fresh clone has it: without the databases that a run creates.
fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_folder(&source, &target);
        } else if !entry.file_name().to_string_lossy().contains(".db") {
            std::fs::copy(source, target).unwrap();
        }
    }
}

/// Runs a script as a reader would, and waits for everything it started in the background.
fn run_script(script: &str) -> CliOutput {
    let dir = TestDir::new();
    copy_folder(&root().join("examples"), &dir.path("examples"));
    copy_folder(&root().join("sdk/python"), &dir.path("sdk/python"));
    let binary = Path::new(env!("CARGO_BIN_EXE_longshore"));
    let mut path = binary.parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    let mut bash = Command::new("bash");
    bash.args(["-eu", "-o", "pipefail", "-c", &format!("{script}\nwait\n")]);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LONGSHORE_") {
            bash.env_remove(name);
        }
    }
    bash.env("PATH", path).current_dir(dir.path("")).process_group(0);
    bash.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    CliOutput::of(bash.spawn().unwrap())
}

fn main() {
    let checks: [(&str, fn()); 4] = [
        ("only_the_named_blocks_are_left_out", only_the_named_blocks_are_left_out),
        ("no_two_blocks_listen_on_one_port", no_two_blocks_listen_on_one_port),
        (
            "blocks_are_found_with_their_line_and_read_as_scripts",
            blocks_are_found_with_their_line_and_read_as_scripts,
        ),
        ("a_block_that_fails_is_noticed", a_block_that_fails_is_noticed),
    ];
    let checks = checks.map(|(name, check)| trial(name, check));
    let mut tests: Vec<Trial> = checks.into();
    for (name, blocks) in documents() {
        let scripts = blocks.into_iter().filter_map(|block| Some((block.line, block.script()?)));
        tests.extend(
            scripts.map(|(line, script)| trial(format!("{name}:{line}"), move || assert_runs(&script))),
        );
    }
    libtest_mimic::run(&Arguments::from_args(), tests).exit()
}

fn trial(name: impl Into<String>, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        test();
        Ok(())
    })
}

fn assert_runs(script: &str) {
    let run = run_script(script);
    assert_eq!(run.code, 0, "{script}\nstdout: {}\nstderr: {}", run.out, run.err);
}

fn only_the_named_blocks_are_left_out() {
    let mut left_out = Vec::new();
    for (name, blocks) in documents() {
        for block in blocks.iter().filter(|block| block.script().is_none()) {
            let first = block.code.lines().next().unwrap_or_default();
            left_out.push((name.clone(), first.to_owned()));
        }
    }
    let named = SKIPPED_BLOCKS.map(|(name, line)| (name.to_owned(), line.to_owned()));
    assert_eq!(left_out, named);
    let ran: usize = documents().iter().map(|(_, blocks)| blocks.len()).sum();
    assert!(ran >= 60, "only {ran} blocks were found");
}

/// Blocks run concurrently.
fn no_two_blocks_listen_on_one_port() {
    let mut taken = BTreeMap::new();
    for (name, blocks) in documents() {
        for block in blocks {
            let Some(script) = block.script() else { continue };
            let ports = script.split("127.0.0.1:").skip(1);
            let ports = ports.map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap());
            for port in ports.map(str::to_owned).collect::<BTreeSet<_>>() {
                let block = format!("{name}:{}", block.line);
                let other = taken.insert(port.clone(), block.clone());
                assert_eq!(other, None, "{block} uses port {port} as well");
            }
        }
    }
}

fn blocks_are_found_with_their_line_and_read_as_scripts() {
    let text = "a\n```sh\nalias longshore=x\ncargo run --release -- chaos\nls\n```\n\
                b\n```json\n{}\n```\n```sh no-run\nrm -rf /\n```\n```sh\n./test\ncargo doc\n```\n";
    let found = blocks(text);
    let lines: Vec<(usize, &str)> = found.iter().map(|block| (block.line, block.language.as_str())).collect();
    assert_eq!(lines, [(2, "sh"), (8, "json"), (11, "sh no-run"), (14, "sh")]);
    let scripts: Vec<Option<String>> = found.iter().map(Block::script).collect();
    assert_eq!(scripts[0].as_deref(), Some("longshore chaos\nls"));
    assert_eq!((&scripts[2], &scripts[3]), (&None, &None));
}

fn a_block_that_fails_is_noticed() {
    assert_ne!(run_script("longshore frobnicate\ntrue").code, 0, "the first failure ends it");
    assert_ne!(run_script("longshore batch list | grep nothing-like-it").code, 0, "in a pipe too");
    assert_ne!(run_script("echo $NO_SUCH_VARIABLE").code, 0);
    assert_eq!(run_script("longshore batch list").code, 0);
}
