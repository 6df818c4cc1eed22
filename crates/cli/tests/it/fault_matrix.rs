//! The fault matrix: each part that Longshore depends on, under each fault, with real processes and servers.
//!
//! A cell starts a workload, injects its fault through a proxy, a signal, a lock, a full disk or a preloaded library, ends
//! it, and checks that nothing was lost, nothing was counted twice, no attempt was used, no healthy process was killed,
//! memory stayed bounded, work continued, and an outage was one log line and one alert. `./test` runs one or two cells
//! per row with short faults; `LONGSHORE_SOAK` runs all cells with long ones, `LONGSHORE_FAULT` one column. `--no-capture` shows the measured times.
//!
//! The table is in docs/guarantees.md. After a change of [`MATRIX`], write it anew with
//! `SNAPSHOTS=write cargo nextest run -p longshore-cli the_table_in_the_guarantees`.

mod ai;
mod cell;
mod dispatch;
mod redis;
mod rows_database;
mod shim;
mod smtp;
mod stores;
mod webhook;
mod worker_process;

use std::panic::{AssertUnwindSafe, catch_unwind};

use cell::{CellReport, FAULTS, Fault};

use crate::support::pick_size;

/// Whether a cell is run.
#[derive(Debug, Clone, Copy)]
enum CellStatus {
    /// A broken promise fails the test.
    Strict,
    /// The fault cannot happen to this part, or needs what no test has.
    Absent,
}

impl CellStatus {
    fn text(self) -> &'static str {
        match self {
            Self::Strict => "yes",
            Self::Absent => "–",
        }
    }
}

/// A part that Longshore depends on.
struct MatrixRow {
    name: &'static str,
    run: fn(Fault) -> CellReport,
    /// The cells that `./test` runs.
    quick: &'static [Fault],
    /// One for each of [`FAULTS`].
    cells: [CellStatus; FAULTS.len()],
}

use CellStatus::{Absent, Strict};

/// Columns: latency, stall, cut, half-open, restart, full, slow, read-only, I/O errors, clock jumps.
const MATRIX: [MatrixRow; 12] = [
    MatrixRow {
        name: "store SQLite",
        run: stores::sqlite,
        quick: &[Fault::Full, Fault::IoError],
        cells: [Strict, Strict, Absent, Absent, Absent, Strict, Strict, Strict, Strict, Strict],
    },
    MatrixRow {
        name: "store PostgreSQL",
        run: stores::postgres,
        quick: &[Fault::Cut],
        cells: [Strict, Strict, Strict, Strict, Strict, Strict, Strict, Strict, Absent, Strict],
    },
    MatrixRow {
        name: "rows' database",
        run: rows_database::run,
        quick: &[Fault::Cut],
        cells: [Strict, Strict, Strict, Strict, Strict, Absent, Strict, Absent, Absent, Absent],
    },
    MatrixRow {
        name: "Redis",
        run: redis::run,
        quick: &[Fault::Cut],
        cells: [Strict, Strict, Strict, Strict, Strict, Strict, Strict, Strict, Absent, Strict],
    },
    MatrixRow {
        name: "AI provider",
        run: ai::provider,
        quick: &[Fault::Cut],
        cells: [Strict, Strict, Strict, Strict, Strict, Absent, Strict, Absent, Absent, Absent],
    },
    MatrixRow {
        name: "gateway client",
        run: ai::gateway_client,
        quick: &[Fault::Stall],
        cells: [Strict, Strict, Strict, Strict, Absent, Absent, Strict, Absent, Absent, Absent],
    },
    MatrixRow {
        name: "dispatch link",
        run: dispatch::link,
        quick: &[Fault::Cut, Fault::HalfOpen],
        cells: [Strict, Strict, Strict, Strict, Absent, Absent, Strict, Absent, Absent, Absent],
    },
    MatrixRow {
        name: "dispatch server",
        run: dispatch::server,
        quick: &[Fault::Stall],
        cells: [Strict, Strict, Absent, Absent, Strict, Absent, Strict, Absent, Absent, Absent],
    },
    MatrixRow {
        name: "scheduler commands",
        run: dispatch::scheduler_commands,
        quick: &[Fault::Cut],
        cells: [Strict, Strict, Strict, Absent, Absent, Absent, Absent, Absent, Absent, Absent],
    },
    MatrixRow {
        name: "SMTP",
        run: smtp::run,
        quick: &[Fault::Latency],
        cells: [Strict, Strict, Strict, Strict, Strict, Absent, Strict, Absent, Absent, Strict],
    },
    MatrixRow {
        name: "worker process",
        run: worker_process::run,
        quick: &[Fault::Stall],
        cells: [Strict, Strict, Absent, Absent, Strict, Absent, Strict, Absent, Absent, Strict],
    },
    MatrixRow {
        name: "webhook",
        run: webhook::run,
        quick: &[Fault::Stall],
        cells: [Strict, Strict, Strict, Strict, Strict, Absent, Strict, Absent, Absent, Absent],
    },
];

/// Runs the cells of a row: some of them, or in a soak all.
fn run_row(name: &str) {
    let row = MATRIX.iter().find(|row| row.name == name).unwrap();
    let soak = pick_size(false, true);
    let only = std::env::var("LONGSHORE_FAULT").ok();
    let mut broken = Vec::new();
    for (fault, status) in FAULTS.into_iter().zip(row.cells) {
        let chosen = match status {
            Absent => false,
            Strict => match &only {
                Some(title) => fault.title().starts_with(title.as_str()),
                None => soak || row.quick.contains(&fault),
            },
        };
        if chosen && !run_cell(row, fault) {
            broken.push(fault);
        }
    }
    assert!(broken.is_empty(), "{name}: broken by {broken:?}");
}

/// Runs a cell, and prints its result. Returns whether it kept its promises. A cell that is skipped in a soak is broken:
/// the table says that it was run.
fn run_cell(row: &MatrixRow, fault: Fault) -> bool {
    let cell = format!("{} × {}", row.name, fault.title());
    eprintln!("{cell}: begins");
    let report = catch_unwind(AssertUnwindSafe(|| (row.run)(fault)));
    match &report {
        Ok(report) => eprintln!("{cell}: {report}"),
        Err(_) => eprintln!("{cell}: broken"),
    }
    report.is_ok_and(|report| report.skipped.is_none() || !pick_size(false, true))
}

macro_rules! rows {
    ($($test:ident: $name:literal;)*) => {
        $(#[test]
        fn $test() {
            run_row($name);
        })*

        /// The rows that have a test.
        const TESTED: &[&str] = &[$($name),*];
    };
}

rows! {
    store_sqlite: "store SQLite";
    store_postgres: "store PostgreSQL";
    rows_in_another_database: "rows' database";
    permits_on_redis: "Redis";
    ai_provider: "AI provider";
    gateway_client: "gateway client";
    dispatch_link: "dispatch link";
    dispatch_server: "dispatch server";
    scheduler_commands: "scheduler commands";
    mail_server: "SMTP";
    worker_in_another_language: "worker process";
    alert_webhook: "webhook";
}

#[test]
fn every_row_of_the_matrix_has_a_test_and_a_quick_cell() {
    let names: Vec<&str> = MATRIX.iter().map(|row| row.name).collect();
    assert_eq!(names, TESTED);
    for row in &MATRIX {
        for quick in row.quick {
            let at = FAULTS.iter().position(|fault| fault == quick).unwrap();
            assert!(matches!(row.cells[at], Strict), "{}: ./test would run no cell", row.name);
        }
    }
}

/// The matrix in Markdown.
fn table() -> String {
    let titles = FAULTS.map(Fault::title).join(" | ");
    let mut lines = vec![format!("| | {titles} |"), format!("|---|{}", "---|".repeat(FAULTS.len()))];
    lines.extend(MATRIX.iter().map(|row| {
        let cells = row.cells.map(CellStatus::text).join(" | ");
        format!("| {} | {cells} |", row.name)
    }));
    lines.join("\n")
}

const BEGIN: &str = "<!-- fault matrix: written by crates/cli/tests/it/fault_matrix.rs -->\n";
const END: &str = "\n<!-- end of the fault matrix -->";

#[test]
fn the_table_in_the_guarantees_lists_exactly_the_cells_of_the_suite() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guarantees.md");
    let text = std::fs::read_to_string(file).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the first marker");
    let (written, after) = rest.split_once(END).expect("the second marker");
    eprintln!("{}", table());
    if std::env::var_os("SNAPSHOTS").is_some_and(|mode| mode == "write") {
        return std::fs::write(file, [before, BEGIN, &table(), END, after].concat()).unwrap();
    }
    assert_eq!(written, table());
}
