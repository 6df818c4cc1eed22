//! Digests into the spool: members and template of the example are read, rendered, sealed and stored, with the
//! concurrency of a batch. Without queue and tracker: see `batch.rs` for those.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{anyhow, ensure};
use longshore::{BatchId, SqlValue, SystemClock, UnitId};
use longshore_batch::definition::{Pre, RowStep};
use longshore_batch::file::{BatchFile, Overrides};
use longshore_batch::mail::{MailPrepare, MailSpool, SpooledMail};
use longshore_batch::pre_post::RowRun;
use longshore_batch::rows::{RowSource, open, seed};
use longshore_mail::digest::DigestSpool;
use longshore_mail::group_commit::GroupCommitQueue;
use longshore_mail::mjml::{Compiler, EmbeddedRenderer};
use longshore_mail::spool::Spool;
use tokio::task::JoinSet;

use crate::{Scratch, here};

/// Concurrent members, as in the example.
pub(crate) const AT_ONCE: u32 = 64;
/// Renderer threads.
const THREADS: usize = 4;

pub(crate) async fn measure(scratch: &Scratch, messages: usize, rounds: usize) -> anyhow::Result<()> {
    let rate = scratch.rounds("digest", rounds, async |folder| round(folder, messages).await).await?;
    println!("\n{:<52} {:>8.0}/s", "digests of examples/digest into the spool", rate);
    Ok(())
}

async fn round(folder: &Path, messages: usize) -> anyhow::Result<f64> {
    let path = members(folder, messages)?;
    let source: Arc<dyn RowSource> = open(&format!("sqlite:{}", path.display()))?;
    let file = BatchFile::load(&example(), &Overrides::default())?.definition;
    let (RowStep::Mail(mail), Pre::Sql(pre)) = (&file.step, &file.pre) else {
        return Err(anyhow!("the example writes to nobody"));
    };
    let prepare = MailPrepare::compile(&file.tenant, &file.kind, pre, mail).map_err(|why| anyhow!(why))?;
    let (office, spool) = office(folder).await?;
    let job = Arc::new(Job { source, prepare, office, batch: BatchId::new("bench")? });
    let begun = Instant::now();
    let mut slots = JoinSet::new();
    for slot in 0..AT_ONCE as usize {
        let job = Arc::clone(&job);
        slots.spawn(async move {
            let mut kept = Vec::new();
            for n in (slot..messages).step_by(AT_ONCE as usize) {
                kept.push(job.write_to(n).await?);
            }
            anyhow::Ok(kept)
        });
    }
    let mut kept: Vec<SpooledMail> = Vec::new();
    while let Some(slot) = slots.join_next().await {
        kept.extend(slot??);
    }
    let rate = messages as f64 / begun.elapsed().as_secs_f64();
    ensure!(
        kept.iter().all(|one| one.created && one.metadata.items > 5),
        "not every recipient has a message"
    );
    ensure!(spool.stats(longshore::Clock::now(&SystemClock))?.pending == messages);
    Ok(rate)
}

struct Job {
    source: Arc<dyn RowSource>,
    prepare: MailPrepare,
    office: DigestSpool,
    batch: BatchId,
}

impl Job {
    async fn write_to(&self, n: usize) -> anyhow::Result<SpooledMail> {
        let key = SqlValue::Int(1_000 + i64::try_from(n)?);
        let row = RowRun {
            batch: &self.batch,
            unit: UnitId::new(),
            key: &key,
            attempt: 1,
            generation: 1,
            run_key: String::new(),
            is_last_attempt: false,
            has_ended: false,
            answers: std::collections::BTreeMap::new(),
            worker: "bench",
            source: &*self.source,
            read_until: None,
        };
        Ok(self.office.enqueue(self.prepare.message(&row).await?).await?)
    }
}

/// Opens the mail spool and the office that writes to it.
pub(crate) async fn office(folder: &Path) -> anyhow::Result<(DigestSpool, Spool)> {
    let spool = Spool::open(&folder.join("spool"))?;
    let queue = GroupCommitQueue::new(spool.clone(), Arc::new(SystemClock));
    let compiler = Compiler::new(Arc::new(EmbeddedRenderer::new(THREADS).await?));
    let office = DigestSpool::new(compiler, queue, Vec::new(), Arc::new(SystemClock));
    Ok((office, spool))
}

pub(crate) fn example() -> PathBuf {
    here().join("../../examples/digest")
}

/// Creates the example's database with more members.
pub(crate) fn members(folder: &Path, more: usize) -> anyhow::Result<PathBuf> {
    let path = folder.join("neighbours.db");
    let sql = std::fs::read_to_string(example().join("seed.sql"))?;
    let sql = format!(
        "{sql}\nWITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {more})
         INSERT INTO members (id, name, email, place, wants, seen_on)
         SELECT 1000 + i, m.name, 'more' || i || '@neighbours.example', m.place, 'daily', date('now')
         FROM n JOIN members m ON m.id = 1 + i % 190;"
    );
    let seeded = folder.join("seed.sql");
    std::fs::write(&seeded, sql)?;
    seed::create(&path, &seeded)?;
    Ok(path)
}
