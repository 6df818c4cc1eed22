//! A batch of many rows: the memory of its run is bounded, and a finished row takes little space in the store.
//!
//! Small by default, a million rows with `LONGSHORE_SOAK`; `--no-capture` shows the figures.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use longshore_testkit::servers::PrivatePostgres;

use crate::batch_job::{BatchJob, ROWS_IN_POSTGRES};
use crate::support::{ChildGuard, pick_size, stretch};

/// The most memory that a run may use.
const MAX_RESIDENT_BYTES: u64 = 100_000_000;
/// The most space of a finished row in the store. In PostgreSQL versions of rows that were vacuumed count, too.
const MAX_BYTES_ON_SQLITE: u64 = 1_000;
const MAX_BYTES_ON_POSTGRES: u64 = 3_000;

const EDIT: (&str, &str) = ("workers = 8", "workers = 64");

fn row_count() -> u64 {
    pick_size(10_000, 1_000_000)
}

/// The most memory that the process has used so far.
fn peak_resident_bytes(process: &ChildGuard) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.0.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

/// Runs the batch to its end. `store_bytes` is the size of the store without the rows' own tables, of which a finished row
/// may use `max_bytes`.
fn runs_small(job: &BatchJob, max_bytes: u64, store_bytes: impl Fn() -> u64) {
    let (rows, began) = (row_count(), Instant::now());
    let mut run = job.start(&[]);
    let (mut peak, limit) = (0, stretch(Duration::from_secs(180)));
    while run.0.try_wait().unwrap().is_none() {
        peak = peak_resident_bytes(&run).unwrap_or_default().max(peak);
        assert!(began.elapsed() < limit, "it did not end: {}", job.dir.read("stderr"));
        std::thread::sleep(Duration::from_millis(20));
    }
    let took = began.elapsed();
    assert_eq!(run.ends_within(limit), 0, "{}", job.dir.read("stderr"));
    assert_eq!(job.count("effects"), rows);
    assert_eq!(job.batch()["done"], rows);
    job.execute("DROP TABLE rows; DROP TABLE effects");
    let bytes = store_bytes() / rows;
    eprintln!(
        "{rows} rows in {took:.1?}, {} MB at most, {bytes} bytes of the store per row",
        peak / 1_000_000
    );
    assert!(peak > 0 && peak < MAX_RESIDENT_BYTES, "{peak} bytes");
    assert!(bytes < max_bytes, "{bytes} bytes per row");
}

#[test]
fn a_million_rows_use_bounded_memory_and_little_space() {
    let job = BatchJob::good(row_count()).with(&[EDIT]);
    job.seed();
    runs_small(&job, MAX_BYTES_ON_SQLITE, || {
        job.query(
            "SELECT (page_count - freelist_count) * page_size
             FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
        )
    });
}

#[test]
fn a_million_rows_use_bounded_memory_and_little_space_on_postgres() {
    let server = Rc::new(RefCell::new(PrivatePostgres::start().unwrap()));
    let job = BatchJob::good(row_count()).with(&[EDIT, ROWS_IN_POSTGRES]).move_to(&server, &server, &[]);
    let bytes = || -> u64 {
        let size = server.borrow().run("SELECT pg_database_size(current_database())").unwrap();
        size.trim().parse().unwrap()
    };
    // The schema takes space without any row.
    job.dir.run(&["migrate"]).ok();
    let empty = bytes();
    job.seed();
    runs_small(&job, MAX_BYTES_ON_POSTGRES, || {
        server.borrow().run("VACUUM").unwrap();
        bytes() - empty
    });
}
