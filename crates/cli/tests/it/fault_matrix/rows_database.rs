//! `batch run` with its rows in a PostgreSQL behind a proxy. The store is reached without the proxy.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use longshore_testkit::fault_proxy::FaultProxy;
use longshore_testkit::servers::PrivatePostgres;

use super::cell::{Bystanders, CellReport, Fault, recovery};
use crate::batch_job::BatchJob;
use crate::pg_batch_storm::{KEYS, REPEATABLE};
use crate::support::{TIMEOUT, eventually, stretch};

const ROWS: usize = 120;

pub fn run(fault: Fault) -> CellReport {
    let server = Rc::new(RefCell::new(PrivatePostgres::start().unwrap()));
    let proxy = FaultProxy::start(format!("127.0.0.1:{}", server.borrow().port())).unwrap();
    let url = server.borrow().url_at_port(proxy.address().port());
    let database = format!("database = \"{url}\"");
    let edits = [("database = \"sqlite:rows.db\"\nseed = \"seed.sql\"", database.as_str())];
    // Half a second per row.
    let job = BatchJob::new(ROWS as u64, "'slow'").with(&[&edits[..], &REPEATABLE].concat());
    let job = job.move_to(&server, &server, &KEYS);
    job.seed();
    let mut run = job.start(&[]);
    let effects = || usize::try_from(job.count("effects")).unwrap();
    eventually(TIMEOUT, || (effects() >= ROWS / 10).then_some(()));
    let bystanders = Bystanders::new([&run]);
    match fault {
        Fault::Restart => server.borrow_mut().restart().unwrap(),
        _ => fault.inject(&proxy),
    }
    // A run that has ended does not recover: its rows are all that is left to check.
    let ended = std::cell::RefCell::new(&mut run);
    let has_ended = || ended.borrow_mut().0.try_wait().unwrap().is_some();
    let recovery = recovery(|| if has_ended() { ROWS } else { effects() }, ROWS);
    if !has_ended() {
        bystanders.assert_alive_and_bounded();
    }
    assert_eq!(run.ends_within(stretch(Duration::from_secs(120))), 0, "{}", job.dir.read("stderr"));
    assert_eq!((effects(), job.count("failures")), (ROWS, 0));
    job.assert_exact();
    CellReport { recovery, notes: String::new(), skipped: None }
}
