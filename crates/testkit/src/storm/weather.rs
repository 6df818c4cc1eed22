//! The storm itself: starts processes, kills and stops them, changes the pool, restarts its server.

use std::io;
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_core::permits::{Ask, Otherwise, Permits, PoolStats};
use longshore_core::{PermitId, PoolName, Priority};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::timeout;

use super::books::Books;
use super::chance::Chance;
use super::member::Orders;
use super::report::Report;
use super::witness::Witness;

/// How large a storm is.
#[derive(Debug, Clone)]
pub struct Storm {
    /// Processes at once.
    pub processes: usize,
    /// Permits that are to be given at least, for each of them.
    pub acquires: u64,
    /// How long a lease lasts.
    pub ttl: Duration,
    /// How long a place in the line does.
    pub place: Duration,
    /// How often the server is restarted.
    pub restarts: u32,
    /// Whether it forgets everything then: also the maximum, which is what the next to ask says.
    pub forgets: bool,
}

/// Who starts a process of the storm: one whose environment has the [`Orders`] and which calls
/// [`member`](super::member()).
pub type Member<'a> = &'a dyn Fn() -> io::Result<Command>;

/// The pool's first maximum; later ones are up to twice that.
const MAX: u32 = 4;
/// Longer than any storm takes.
const FOREVER: Duration = Duration::from_secs(900);

impl Storm {
    /// Small; what was promised with `LONGSHORE_SOAK=1`.
    pub fn sized() -> Self {
        let soak = std::env::var_os("LONGSHORE_SOAK").is_some();
        let (processes, acquires) = if soak { (32, 200) } else { (8, 25) };
        let (ttl, place) = (Duration::from_millis(1500), Duration::from_secs(6));
        Self { processes, acquires, ttl, place, restarts: 2, forgets: false }
    }

    /// Lets it rage on a pool that nobody uses. `place_of_pool` is for the processes, `restart` restarts
    /// the server and returns when it is back.
    pub async fn rage(
        &self,
        permits: Arc<dyn Permits>,
        place_of_pool: &str,
        member: Member<'_>,
        restart: &mut dyn FnMut(),
    ) -> io::Result<Report> {
        let enough = self.acquires * u64::try_from(self.processes).unwrap_or(1);
        let books = Books::new(self.ttl, self.place, MAX);
        let (witness, address) = Witness::start(books)?;
        let seed = u64::from(std::process::id());
        let orders = Orders {
            place_of_pool: place_of_pool.to_owned(),
            pool: pool(),
            witness: address.to_string(),
            seed,
            max: MAX,
            ttl: self.ttl,
            place: self.place,
        };
        let mut crew = Crew { member, orders, children: Vec::new() };
        for _ in 0..self.processes {
            crew.start()?;
        }
        let chance = Chance::new(seed);
        let mut sky = Sky { storm: self, permits, witness, chance, report: empty(seed) };
        sky.blow(&mut crew, enough, restart).await?;
        crew.end(Instant::now() + FOREVER).await?;
        sky.clear().await
    }
}

fn pool() -> PoolName {
    // Nothing is wrong with it.
    PoolName::new("storm").unwrap_or_else(|_| unreachable!())
}

fn empty(seed: u64) -> Report {
    Report {
        total: 0,
        most: 0,
        killed: 0,
        stopped: 0,
        restarted: 0,
        resized: 0,
        wrongs: Vec::new(),
        end: PoolStats::default(),
        seed,
    }
}

struct Sky<'a> {
    storm: &'a Storm,
    permits: Arc<dyn Permits>,
    witness: Witness,
    chance: Chance,
    report: Report,
}

impl Sky<'_> {
    /// Until enough permits were given.
    async fn blow(
        &mut self,
        crew: &mut Crew<'_>,
        enough: u64,
        restart: &mut dyn FnMut(),
    ) -> io::Result<()> {
        let until = Instant::now() + FOREVER;
        loop {
            let total = self.witness.books().total;
            if total >= enough && self.was_one() {
                self.witness.is_over();
                return Ok(());
            }
            crew.wake(Instant::now())?;
            if Instant::now() > until {
                return Err(io::Error::other(format!("only {total} of {enough} were given")));
            }
            let due =
                u64::from(self.report.restarted + 1) * enough / u64::from(self.storm.restarts + 1);
            if self.report.restarted < self.storm.restarts && total >= due {
                self.restart(crew, restart).await?;
            }
            // As much of it as there was use, so that the one does not drown the other.
            let due = self.quota() * total.min(enough) / enough + 1;
            match self.chance.below(4) {
                0 if u64::from(self.report.killed) < due => self.kill(crew)?,
                1 if u64::from(self.report.stopped) < due => self.stop(crew)?,
                2 if u64::from(self.report.resized) < due => self.resize(crew).await?,
                _ => {}
            }
            let lull = Duration::from_millis(10 + self.chance.below(50));
            tokio::time::sleep(lull).await;
        }
    }

    /// Whether there was enough of everything.
    fn was_one(&self) -> bool {
        let Report { killed, stopped, resized, restarted, .. } = self.report;
        restarted == self.storm.restarts
            && u64::from(killed.min(stopped).min(resized)) >= self.quota()
    }

    /// How often each of it happens: once for each process.
    fn quota(&self) -> u64 {
        u64::try_from(self.storm.processes).unwrap_or(1)
    }

    fn kill(&mut self, crew: &mut Crew<'_>) -> io::Result<()> {
        let whom = self.pick(crew);
        crew.kill(whom)?;
        self.report.killed += 1;
        crew.start()
    }

    /// For less than a lease, or for longer.
    fn stop(&mut self, crew: &mut Crew<'_>) -> io::Result<()> {
        let whom = self.pick(crew);
        let most = u64::try_from(self.storm.ttl.as_millis()).unwrap_or(1000) * 3 / 2;
        let long = Duration::from_millis(self.chance.below(most));
        self.report.stopped += 1;
        crew.stop(whom, Instant::now() + long)
    }

    async fn restart(&mut self, crew: &mut Crew<'_>, restart: &mut dyn FnMut()) -> io::Result<()> {
        self.witness.books().life += 1;
        if self.storm.forgets {
            // From now on it may be this one, until somebody sets it again.
            self.witness.books().resizing(MAX);
        }
        restart();
        self.witness.books().life += 1;
        self.report.restarted += 1;
        if self.storm.forgets {
            self.resize(crew).await?;
        }
        Ok(())
    }

    async fn resize(&mut self, crew: &mut Crew<'_>) -> io::Result<()> {
        let max = 2 + u32::try_from(self.chance.below(u64::from(MAX) * 2 - 1)).unwrap_or(0);
        self.witness.books().resizing(max);
        let (permits, name) = (Arc::clone(&self.permits), pool());
        let resize = async {
            while permits.resize(&name, max).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let mut resize = pin!(resize);
        // Whoever was stopped may be in the way: a file has one writer at a time.
        while timeout(Duration::from_millis(20), resize.as_mut()).await.is_err() {
            crew.wake(Instant::now())?;
        }
        self.witness.books().resized(Instant::now());
        self.report.resized += 1;
        Ok(())
    }

    fn pick(&mut self, crew: &Crew<'_>) -> usize {
        let count = u64::try_from(crew.children.len()).unwrap_or(1);
        usize::try_from(self.chance.below(count)).unwrap_or(0)
    }

    /// Waits until the leases of the dead have run out, and takes everything once more.
    async fn clear(mut self) -> io::Result<Report> {
        let until = Instant::now() + FOREVER;
        let stats = loop {
            let stats = self.permits.stats(&pool()).await.map_err(io::Error::other)?;
            let stats = stats.unwrap_or_default();
            let quiet = stats.in_use == 0 && stats.waiting.is_empty() && stats.quarantine.is_none();
            if quiet || Instant::now() > until {
                break stats;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let all = Ask {
            id: PermitId::new(),
            max: MAX,
            weight: stats.max,
            priority: Priority::NORMAL,
            owner: "storm".into(),
            ttl: self.storm.ttl,
            otherwise: Otherwise::GoAway,
        };
        let answer = self.permits.ask(&pool(), &all).await.map_err(io::Error::other)?;
        if !matches!(answer, longshore_core::permits::Answer::Granted(_)) {
            self.report.wrongs.push(format!("not all were there at the end: {answer:?}"));
        }
        self.permits.release(&pool(), &[all.id]).await.map_err(io::Error::other)?;
        let mut books = self.witness.books();
        books.check_order();
        self.report.total = books.total;
        self.report.most = books.most;
        self.report.wrongs.append(&mut books.wrongs);
        drop(books);
        self.report.end = stats;
        Ok(self.report)
    }
}

/// The processes. None outlives this.
struct Crew<'a> {
    member: Member<'a>,
    orders: Orders,
    children: Vec<Hand>,
}

struct Hand {
    child: Child,
    /// When it goes on, if it is stopped.
    wakes: Option<Instant>,
}

impl Crew<'_> {
    fn start(&mut self) -> io::Result<()> {
        self.orders.seed += 1000;
        let (name, value) = self.orders.variable();
        let mut command = (self.member)()?;
        command.env(name, value).stdin(Stdio::null()).stdout(Stdio::null());
        self.children.push(Hand { child: command.spawn()?, wakes: None });
        Ok(())
    }

    fn kill(&mut self, whom: usize) -> io::Result<()> {
        let mut hand = self.children.swap_remove(whom);
        hand.child.kill()?;
        hand.child.wait().map(drop)
    }

    fn stop(&mut self, whom: usize, until: Instant) -> io::Result<()> {
        let hand = &mut self.children[whom];
        hand.wakes = Some(until);
        Ok(kill_process(Pid::from_child(&hand.child), Signal::STOP)?)
    }

    /// Those whose time has come go on.
    fn wake(&mut self, now: Instant) -> io::Result<()> {
        for hand in &mut self.children {
            if hand.wakes.take_if(|wakes| *wakes <= now).is_some() {
                kill_process(Pid::from_child(&hand.child), Signal::CONT)?;
            }
        }
        Ok(())
    }

    /// All end by themselves once the witness has seen enough.
    async fn end(&mut self, until: Instant) -> io::Result<()> {
        while let Some(hand) = self.children.last_mut() {
            match hand.child.try_wait()? {
                Some(status) if status.success() => drop(self.children.pop()),
                Some(status) => {
                    return Err(io::Error::other(format!("a process failed: {status}")));
                }
                None if Instant::now() > until => {
                    return Err(io::Error::other("a process does not end"));
                }
                None => {
                    self.wake(Instant::now())?;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
        Ok(())
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        for hand in &mut self.children {
            // It may be gone already.
            let _ = hand.child.kill();
            let _ = hand.child.wait();
        }
    }
}
