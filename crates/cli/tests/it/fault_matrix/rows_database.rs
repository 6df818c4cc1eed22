//! `batch run` with its rows in a PostgreSQL behind a proxy. The store is another server. No row fails, none
//! uses an attempt, and an outage is one line in the log.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use longshore_testkit::fault_proxy::FaultProxy;
use longshore_testkit::servers::PrivatePostgres;

use super::cell::{AlertReceiver, Bystanders, CellReport, Fault, count_log_lines, recovery};
use crate::batch_job::{BatchJob, ROWS_IN_POSTGRES, SharedPostgres};
use crate::pg_batch_storm::{KEYS, REPEATABLE};
use crate::support::{TIMEOUT, eventually, stretch};

const ROWS: usize = 120;
/// What the log and an alert say of an outage.
const OUTAGE: &str = "the rows' database is unavailable";

pub fn run(fault: Fault) -> CellReport {
    let (usual, _) = Trial::start().finish();
    let mut trial = Trial::start();
    eventually(TIMEOUT, || (trial.effects() >= ROWS / 10).then_some(()));
    let bystanders = Bystanders::new([&trial.run]);
    match fault {
        Fault::Restart => trial.server.borrow_mut().restart().unwrap(),
        _ => fault.inject(&trial.proxy),
    }
    let recovery = recovery(|| trial.effects(), ROWS);
    if trial.run.0.try_wait().unwrap().is_none() {
        bystanders.assert_alive_and_bounded();
    }
    let alerts = Rc::clone(&trial.alerts);
    let (disturbed, log) = trial.finish();
    let lines = count_log_lines(&log, OUTAGE);
    let is_outage = fault == Fault::Cut;
    assert!(lines <= 1 && (lines == 1 || !is_outage), "{lines} lines about the outage: {log}");
    assert_eq!(alerts.count(OUTAGE, lines), lines, "alerts");
    let (usual, disturbed) = (usual.as_secs_f64(), disturbed.as_secs_f64());
    let notes = format!("{disturbed:.1} s in all, {usual:.1} s undisturbed; {lines} line(s) in the log");
    CellReport { recovery, notes, skipped: None }
}

/// A batch that runs.
struct Trial {
    server: SharedPostgres,
    _store: SharedPostgres,
    proxy: FaultProxy,
    job: BatchJob,
    run: crate::support::ChildGuard,
    alerts: Rc<AlertReceiver>,
    began: Instant,
}

impl Trial {
    fn start() -> Self {
        let server = Rc::new(RefCell::new(PrivatePostgres::start().unwrap()));
        let store = Rc::new(RefCell::new(PrivatePostgres::start().unwrap()));
        let proxy = FaultProxy::start(format!("127.0.0.1:{}", server.borrow().port())).unwrap();
        let url = server.borrow().url_at_port(proxy.address().port());
        // Half a second per row.
        let job = BatchJob::new(ROWS as u64, "'slow'").with(&[&[ROWS_IN_POSTGRES], &REPEATABLE[..]].concat());
        let job = job.move_to(&server, &store, &KEYS);
        job.dir.write("rows.url", url);
        let alerts = AlertReceiver::start();
        job.dir.write("longshore.toml", job.dir.read("longshore.toml") + &alerts.config());
        job.seed();
        let run = job.start(&[]);
        Self { server, _store: store, proxy, job, run, alerts: Rc::new(alerts), began: Instant::now() }
    }

    fn effects(&self) -> usize {
        usize::try_from(self.job.count("effects")).unwrap()
    }

    /// The time of the whole run, and its log. No row has failed or used a second attempt.
    fn finish(mut self) -> (Duration, String) {
        assert_eq!(
            self.run.ends_within(stretch(Duration::from_secs(120))),
            0,
            "{}",
            self.job.dir.read("stderr")
        );
        let time = self.began.elapsed();
        assert_eq!((self.effects(), self.job.count("failures")), (ROWS, 0));
        self.job.assert_exact();
        let rows = self.job.rows(&self.job.name(), "done");
        let attempts = rows.iter().map(|row| row["attempt"].as_u64().unwrap()).max();
        assert_eq!((rows.len(), attempts), (ROWS, Some(1)), "rows used attempts");
        (time, self.job.dir.read("stderr"))
    }
}
