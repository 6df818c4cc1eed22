//! Programs of two versions work on one store while the newer one migrates it.
//!
//! In a soak (`./test --soak`) the older program is built from the baseline's commit: the last one that changed
//! `compatibility/baseline.toml`. Otherwise this build stands for it. The newer version is this one with one more
//! migration, which adds a column to every table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use longshore::migration::Migration;
use longshore_postgres::PostgresOptions;
use longshore_sqlite::SqliteOptions;
use longshore_testkit::compatibility::{CONTRACTION, expansion};
use longshore_testkit::servers::PrivatePostgres;

use crate::support::{ChildGuard, CliOutput, TIMEOUT, TestDir, eventually, pick_size, stretch};

const SQLITE_SCHEMA: &str = include_str!("../../../sqlite/schema.sql");
const POSTGRES_SCHEMA: &str = include_str!("../../../postgres/schema.sql");

/// A store on which the versions meet.
struct Rollout {
    dir: TestDir,
    older: PathBuf,
    units: u64,
    /// The database of a store that is not the directory's file.
    server: Option<PrivatePostgres>,
}

impl Rollout {
    fn new(server: Option<PrivatePostgres>) -> Self {
        let dir = TestDir::new();
        if let Some(server) = &server {
            dir.write("longshore.toml", format!("store = \"{}\"\n", server.url()));
        }
        Self { dir, older: older_program(), units: pick_size(600, 20_000), server }
    }

    /// Applies migrations as a newer version does.
    fn migrate(&self, more: &[Migration]) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let version = runtime.block_on(async {
            match &self.server {
                Some(server) => {
                    let migrator =
                        longshore_postgres::PostgresMigrator::new(&server.url(), &PostgresOptions::default());
                    migrator.unwrap().with_more(more).migrate().await
                }
                None => {
                    let path = self.dir.path("longshore.db");
                    let migrator = longshore_sqlite::SqliteMigrator::new(&path, &SqliteOptions::default());
                    migrator.with_more(more).migrate().await
                }
            }
        });
        assert_eq!(version.unwrap(), more.last().unwrap().version);
    }

    fn start(&self, program: &Path) -> ChildGuard {
        self.dir.start_program(program, &["worker", "--slots", "4", "--chaos-log", "runs"])
    }

    fn run(&self, program: &Path, args: &[&str]) -> CliOutput {
        CliOutput::of(self.dir.program(program, args).spawn().unwrap())
    }

    fn submit(&self, program: &Path, from: u64, to: u64) {
        let lines: String = (from..to).map(|n| format!("{{\"n\":{n},\"ms\":{}}}\n", n % 10)).collect();
        let file = format!("{from}.ndjson");
        self.dir.write(&file, lines);
        self.run(program, &["submit", "chaos", "--lines", &file]).ok();
    }

    /// How often each unit ran.
    fn runs(&self) -> BTreeMap<u64, u64> {
        let mut runs = BTreeMap::new();
        for line in self.dir.read("runs").lines() {
            *runs.entry(line.parse().unwrap()).or_default() += 1;
        }
        runs
    }

    fn wait_for_runs(&self, units: u64) {
        let limit = stretch(Duration::from_secs(60));
        eventually(limit, || (self.runs().len() as u64 >= units).then_some(()));
    }

    /// The newer version migrates the store while the older one works; then both work.
    fn roll_out(&self, expansion: Migration) {
        let newer = Path::new(env!("CARGO_BIN_EXE_longshore"));
        self.submit(&self.older, 0, self.units);
        let mut workers = vec![self.start(&self.older)];
        self.wait_for_runs(self.units / 6);
        self.migrate(&[expansion]);
        // Both open the migrated store, and the older worker that ran before goes on.
        workers.extend([self.start(&self.older), self.start(newer)]);
        self.submit(&self.older, self.units, self.units * 3 / 2);
        self.submit(newer, self.units * 3 / 2, self.units * 2);
        self.wait_for_runs(self.units * 2);
        for worker in &mut workers {
            worker.signal("TERM");
            assert_eq!(worker.ends_within(TIMEOUT), 0, "{}", self.dir.read("stderr"));
        }
        let repeated: Vec<_> = self.runs().into_iter().filter(|(_, times)| *times != 1).collect();
        assert!(repeated.is_empty(), "{repeated:?}");
        for program in [&self.older, newer] {
            let verified = self.run(program, &["verify", "--json"]).ok().json();
            assert_eq!(verified["units"], self.units * 2);
        }
        assert_eq!(self.dir.queue()["counts"]["done"], self.units * 2);
        let list = self.run(newer, &["migrate", "list", "--json"]).ok().json();
        assert_eq!(list.as_array().unwrap().last().unwrap()["state"], "newer", "{list}");
        self.run(newer, &["migrate", "validate"]).ok();
    }

    /// A migration that removes what this version uses ends its right to the store.
    fn contract(&self, expansion: Migration) {
        self.migrate(&[expansion, CONTRACTION]);
        let refused = self.dir.run(&["queue", "list"]).ends(1);
        refused.says("schema version 1001").says("newer longshore");
        self.dir.run(&["migrate", "validate"]).ends(1).says("incompatible");
    }
}

#[test]
fn programs_of_two_versions_share_a_sqlite_store_while_it_is_migrated() {
    let rollout = Rollout::new(None);
    rollout.roll_out(expansion(SQLITE_SCHEMA));
    rollout.contract(expansion(SQLITE_SCHEMA));
}

#[test]
fn programs_of_two_versions_share_a_postgres_store_while_it_is_migrated() {
    let rollout = Rollout::new(Some(PrivatePostgres::start().unwrap()));
    rollout.roll_out(expansion(POSTGRES_SCHEMA));
    rollout.contract(expansion(POSTGRES_SCHEMA));
}

/// The program of the baseline in a soak, else this one.
fn older_program() -> PathBuf {
    let is_soak = pick_size(false, true);
    if is_soak { build_baseline() } else { PathBuf::from(env!("CARGO_BIN_EXE_longshore")) }
}

/// Builds the baseline's commit.
fn build_baseline() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let baseline = std::fs::read_to_string(root.join("compatibility/baseline.toml")).unwrap();
    let commit = baseline_value(&baseline, "commit");
    let then = shell(&root, &format!("git show {commit}:compatibility/baseline.toml"));
    for key in ["version", "postgres_1", "postgres_2", "sqlite_1", "sqlite_2"] {
        assert_eq!(baseline_value(&then, key), baseline_value(&baseline, key), "{key} at commit {commit}");
    }
    let source = root.join("target/baseline").join(commit);
    if !source.exists() {
        // Two tests may do this at once: one of them renames.
        let own = root.join(format!("target/baseline/{}", std::process::id()));
        std::fs::create_dir_all(&own).unwrap();
        shell(&root, &format!("git archive {commit} | tar -x -C {}", own.display()));
        let _ = std::fs::rename(&own, &source);
    }
    let target = root.join("target/baseline/build");
    shell(&source, &format!("cargo build --quiet -p longshore-cli --target-dir {}", target.display()));
    target.join("debug/longshore")
}

/// The value of a key of the baseline's file.
fn baseline_value<'a>(file: &'a str, key: &str) -> &'a str {
    let line = file.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='));
    line.unwrap_or_else(|| panic!("no {key}")).trim().trim_matches('"')
}

fn shell(dir: &Path, script: &str) -> String {
    let run = Command::new("sh").args(["-ec", script]).current_dir(dir).output().unwrap();
    assert!(run.status.success(), "{script}: {}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap()
}
