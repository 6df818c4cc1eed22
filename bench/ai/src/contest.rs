//! Runs the gateways in turn before the same upstream: once with immediate answers, to measure throughput and
//! CPU time, and once with answers after 50 ms, to measure the added latency.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context as _, Result};

use crate::child::Process;
use crate::figures::{Goal, Wanted, median, percentile, shown, table};
use crate::load::Target;
use crate::{Args, gateway, peers, say, upstream};

/// One row of the table.
pub(crate) struct Contestant {
    /// The name that `--only` matches.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) process: Arc<Process>,
    /// The target with immediate answers.
    pub(crate) instant: Target,
    /// The target with answers after 50 ms.
    pub(crate) slow: Target,
}

/// The measurements of one contestant.
#[derive(Default)]
struct Figures {
    rate: Vec<f64>,
    /// CPU time of its process, in microseconds per request.
    cpu: Vec<f64>,
    /// Latency with the slow upstream, in milliseconds.
    p50: Vec<f64>,
    p99: Vec<f64>,
    megabytes: f64,
}

type All = HashMap<&'static str, Figures>;

/// Runs all contestants, prints the table, and returns the goals.
pub(crate) async fn compare(args: &Args) -> Result<Vec<Goal>> {
    let folder = tempfile::tempdir_in(&args.dir)?;
    // Kept alive here, too: it is needed even if it is not measured itself.
    let upstream = Arc::new(Process::ours(&["upstream"])?);
    let mut contestants = own(folder.path(), &upstream.url)?;
    if args.peers {
        contestants.extend(peers::start(args, folder.path(), &upstream.url).await?);
    }
    contestants.push(direct(Arc::clone(&upstream)));
    contestants.retain(|one| args.wants(one.name));
    let mut all = All::new();
    for round in 0..args.rounds {
        // Each round starts with another contestant, so that none always follows the same one.
        let turn = round % contestants.len().max(1);
        for one in contestants[turn..].iter().chain(&contestants[..turn]) {
            say(&format!("round {} of {}: {}", round + 1, args.rounds, one.name));
            one.run(args, all.entry(one.name).or_default()).await.context(one.name)?;
        }
    }
    if !args.once && !contestants.is_empty() {
        println!("{}", shown_all(&contestants, &all));
    }
    Ok(goals(&all))
}

/// The upstream without a gateway.
fn direct(process: Arc<Process>) -> Contestant {
    let target = |delay| Target {
        url: format!("{}{}/chat/completions", process.url, upstream::base(delay)),
        model: "fake-1".into(),
        token: String::new(),
    };
    let (instant, slow) = (target(0), target(50));
    Contestant { name: "direct", title: "the upstream itself", instant, slow, process }
}

fn own(folder: &std::path::Path, upstream: &str) -> Result<Vec<Contestant>> {
    let floor = Process::ours(&["floor", upstream])?;
    let place = folder.join("gateway");
    let ours = Process::ours(&["gateway".as_ref(), upstream.as_ref(), place.as_os_str()])?;
    let one = |name, title, process: Process| Contestant {
        name,
        title,
        instant: target(&process, "instant"),
        slow: target(&process, "slow"),
        process: Arc::new(process),
    };
    Ok(vec![
        one("floor", "the floor: a bare proxy", floor),
        one("ours", "**Longshore**, limits and usage on", ours),
    ])
}

pub(crate) fn target(process: &Process, model: &str) -> Target {
    let url = format!("{}/v1/chat/completions", process.url);
    Target { url, model: model.to_owned(), token: gateway::TOKEN.to_owned() }
}

impl Contestant {
    /// One run: both measurements, after a warm-up.
    async fn run(&self, args: &Args, figures: &mut Figures) -> Result<()> {
        self.instant.load(args.width, args.part() / 4).await?;
        let before = self.process.cpu()?;
        let sample = self.instant.load(args.width, args.part()).await?;
        let cpu = self.process.cpu()? - before;
        figures.rate.push(sample.rate());
        figures.cpu.push(cpu * 1e6 / sample.millis.len() as f64);
        let sample = self.slow.load(args.width, args.part()).await?;
        figures.p50.push(percentile(&sample.millis, 50));
        figures.p99.push(percentile(&sample.millis, 99));
        figures.megabytes = self.process.megabytes()?;
        Ok(())
    }
}

fn shown_all(contestants: &[Contestant], all: &All) -> String {
    let head = ["", "requests/s", "of the floor", "CPU µs/request", "+ p50 ms", "+ p99 ms", "RSS MB"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for one in contestants {
        let Some(own) = all.get(one.name) else { continue };
        let floor = all.get("floor").map_or(f64::NAN, |floor| ratio(&own.rate, &floor.rate));
        let added = |of: fn(&Figures) -> &Vec<f64>| shown(&added(all, own, of));
        rows.push(vec![
            one.title.to_owned(),
            shown(&own.rate),
            format!("{floor:.2}"),
            shown(&own.cpu),
            added(|figures| &figures.p50),
            added(|figures| &figures.p99),
            format!("{:.0}", own.megabytes),
        ]);
    }
    table(&rows)
}

/// What a contestant adds to the upstream's own time, by round.
fn added(all: &All, own: &Figures, of: fn(&Figures) -> &Vec<f64>) -> Vec<f64> {
    let Some(direct) = all.get("direct") else { return Vec::new() };
    of(own).iter().zip(of(direct)).map(|(own, direct)| own - direct).collect()
}

/// The median of the ratios by round: runs of one round saw the machine in the same state.
fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    median(&ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>())
}

fn goals(all: &All) -> Vec<Goal> {
    let Some(ours) = all.get("ours") else { return Vec::new() };
    let mut goals = Vec::new();
    let wanted = [("floor", 0.5), ("tensorzero", 2.0), ("litellm", 2.0)];
    for (name, least) in wanted {
        if let Some(theirs) = all.get(name) {
            let what = format!("requests/s, instant upstream, over {name}");
            goals.push(Goal::new(what, ratio(&ours.rate, &theirs.rate), Wanted::AtLeast(least)));
        }
    }
    if all.contains_key("direct") {
        let p50 = median(&added(all, ours, |figures| &figures.p50));
        goals.push(Goal::new("added p50 with a 50 ms upstream, ms", p50, Wanted::Under(0.8)));
        let p99 = median(&added(all, ours, |figures| &figures.p99));
        goals.push(Goal::new("added p99 with a 50 ms upstream, ms", p99, Wanted::Under(3.0)));
    }
    goals
}
