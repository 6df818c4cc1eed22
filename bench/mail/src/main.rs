//! Measures mail: the embedded renderer and npm's mjml, digests into the spool, and messages from the spool to a
//! server.
//!
//! `cargo run --profile dist -p bench-mail` shows medians. The renderers are compared in CPU time, which does not
//! depend on other load of the machine. `--once` runs everything small, so that CI notices a broken benchmark.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod batch;
mod digest;
mod render;
mod spool;

use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};

/// Options of the benchmark.
#[derive(Debug, Parser)]
struct Args {
    /// Render each template this many times.
    #[arg(long, default_value_t = 40)]
    renderings: u32,
    /// Send this many messages in each run.
    #[arg(long, default_value_t = 4_000)]
    messages: usize,
    /// Run each measurement this many times and report the median.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Render these templates [default: our own]
    #[arg(long)]
    templates: Option<PathBuf>,
    /// Use the mjml that `npm install mjml` put into this folder.
    #[arg(long, env = "LONGSHORE_MJML")]
    mjml: Option<PathBuf>,
    /// Run only this part.
    #[arg(long)]
    only: Option<Part>,
    /// Run everything once and small, to check that it works.
    #[arg(long)]
    once: bool,
}

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The embedded renderer and npm's mjml.
    Render,
    /// Digests into the spool.
    Digest,
    /// Messages into the spool, and from the spool to a server.
    Spool,
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut args = Args::parse();
    if args.once {
        (args.renderings, args.messages, args.rounds) = (1, 50, 1);
    }
    let scratch = Scratch(tempfile::tempdir()?);
    let wanted = |part| args.only.is_none_or(|only| only == part);
    if wanted(Part::Render) {
        let own = || here().join("../../crates/mail/templates");
        let mjml = args.mjml.clone().unwrap_or_else(|| here().join("../../target/mjml"));
        render::measure(&args.templates.clone().unwrap_or_else(own), &mjml, args.renderings)?;
    }
    if wanted(Part::Digest) {
        digest::measure(&scratch, args.messages, args.rounds).await?;
        batch::measure(&scratch, args.messages, args.rounds).await?;
    }
    if wanted(Part::Spool) {
        spool::measure(&scratch, args.messages, args.rounds).await?;
    }
    Ok(())
}

/// Temporary folders, removed only at the end: ext4 creates files slowly just after thousands were removed.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let folder = self.0.path().join(name);
        std::fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// The median of several rounds, each in a new folder.
    async fn rounds(
        &self,
        name: &str,
        rounds: usize,
        round: impl AsyncFn(&Path) -> anyhow::Result<f64>,
    ) -> anyhow::Result<f64> {
        let mut rates = Vec::new();
        for n in 0..rounds {
            rates.push(round(&self.folder(&format!("{name}-{n}"))?).await?);
        }
        Ok(median(rates))
    }
}

/// The median.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}
