//! How fast mail is: the embedded renderer beside npm's mjml, digests into the spool, and from there to a
//! server.
//!
//! `cargo run --profile dist -p bench-mail` shows medians; the renderers are compared in CPU time, which other
//! work on the machine does not change. `--once` runs everything small, so that the benchmark cannot rot
//! unseen.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod batch;
mod digest;
mod render;
mod spool;

use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};

/// What to measure, and how much of it.
#[derive(Debug, Parser)]
struct Args {
    /// Renderings of each template.
    #[arg(long, default_value_t = 40)]
    renderings: u32,
    /// Messages in each run.
    #[arg(long, default_value_t = 4_000)]
    messages: usize,
    /// Runs of each; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Templates to render [default: our own]
    #[arg(long)]
    templates: Option<PathBuf>,
    /// Where `npm install mjml` was run.
    #[arg(long, env = "LONGSHORE_MJML")]
    mjml: Option<PathBuf>,
    /// Of all there is, only this.
    #[arg(long)]
    only: Option<Part>,
    /// Everything once and small: only to see that it works.
    #[arg(long)]
    once: bool,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The embedded renderer beside npm's.
    Render,
    /// Digests into the spool.
    Digest,
    /// Messages into the spool, and from there to a server.
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

/// Folders to work in. They go when all is measured: ext4 is slow to make files where thousands were removed a
/// moment ago.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let folder = self.0.path().join(name);
        std::fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// What is in the middle of what so many rounds said, each in a folder of its own.
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

/// The one in the middle.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}
