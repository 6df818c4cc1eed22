//! Output of many scripts in shared files.

use std::os::unix::fs::FileExt;
use std::path::Path;

use longshore::UnitState;
use longshore_dispatch::request::{ClientRequest, ServerReply};
use longshore_dispatch::script::{RunReport, Script, ScriptOutput};
use longshore_dispatch::stream::{IndexEntry, OutputChannel, RunSelector, find};

use crate::pool_fixture::{Pool, array, eventually, once};

fn streamed(pool: &Pool, text: &str) -> Script {
    let mut script = pool.script(&format!("{}.sh", longshore::UnitId::new()), text);
    script.output = ScriptOutput::Stream(pool.path("logs"));
    script
}

/// The output of all selected runs.
fn output_of(folder: &Path, which: RunSelector<'_>, only: Option<OutputChannel>) -> String {
    let mut bytes = Vec::new();
    for run in find(folder, which).unwrap().runs {
        run.copy(only, &mut bytes).unwrap();
    }
    String::from_utf8(bytes).unwrap()
}

fn files(pool: &Pool, end: &str) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(pool.path("logs")).unwrap().map(|item| item.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|found| found == end)).collect()
}

#[tokio::test]
async fn many_scripts_make_two_files_per_worker_and_each_is_found_again() {
    let pool = Pool::start().await;
    let _workers = [pool.worker(2), pool.worker(2)];
    let text = "echo out $LONGSHORE_ARRAY_INDEX; echo err $LONGSHORE_ARRAY_INDEX >&2";
    pool.submit(array(streamed(&pool, text), "a", 1, 40)).await;
    let (other, submission) = once(streamed(&pool, "echo alone"));
    pool.submit(submission).await;
    assert_eq!(pool.wait_until_idle().await.done, 41);
    assert!(files(&pool, "out").len() <= 2 && files(&pool, "idx").len() <= 2);
    let folder = pool.path("logs");
    let wanted: String = (1..=40).map(|n| format!("out {n}\n")).collect();
    assert_eq!(output_of(&folder, RunSelector::Array("a", None), Some(OutputChannel::Stdout)), wanted);
    assert_eq!(output_of(&folder, RunSelector::Array("a", Some(7)), Some(OutputChannel::Stderr)), "err 7\n");
    assert_eq!(output_of(&folder, RunSelector::Unit(other), None), "alone\n");
    assert_eq!(output_of(&folder, RunSelector::Array("b", None), None), "");
    let report: RunReport = pool.unit(other).await.result.unwrap().parse().unwrap();
    let location = report.output.unwrap();
    assert_eq!((location.file.parent(), location.bytes), (Some(folder.as_path()), 6));
}

#[tokio::test]
async fn of_a_script_that_ran_again_the_last_run_is_shown() {
    let pool = Pool::start().await;
    let _worker = pool.worker(1);
    let script = streamed(&pool, "[ $LONGSHORE_ATTEMPT = 1 ] && echo once && exit 1; exit 0");
    let (id, mut submission) = once(script);
    submission.policy.retry = longshore::RetryPolicy { max_attempts: 2, ..Default::default() };
    pool.submit(submission).await;
    pool.wait_for_end(id).await;
    let found = find(&pool.path("logs"), RunSelector::Unit(id)).unwrap();
    assert_eq!(found.runs.len(), 1);
    assert_eq!((found.runs[0].attempt, found.runs[0].is_complete), (2, true));
    assert_eq!(output_of(&pool.path("logs"), RunSelector::Unit(id), None), "", "the last one said nothing");
}

#[tokio::test]
async fn u64_output_comes_in_pieces_and_nothing_of_it_is_missing() {
    let pool = Pool::start().await;
    let _worker = pool.worker(1);
    let (id, submission) = once(streamed(&pool, "seq 400000; echo end >&2"));
    pool.submit(submission).await;
    let report: RunReport = pool.wait_for_end(id).await.result.unwrap().parse().unwrap();
    let run = find(&pool.path("logs"), RunSelector::Unit(id)).unwrap().runs.pop().unwrap();
    assert!(run.pieces.len() > 5 && run.is_complete, "{}", run.pieces.len());
    let text = output_of(&pool.path("logs"), RunSelector::Unit(id), Some(OutputChannel::Stdout));
    let wanted: String = (1..=400_000).map(|n| format!("{n}\n")).collect();
    assert!(text == wanted, "{} bytes of {}", text.len(), wanted.len());
    assert_eq!(report.output.unwrap().bytes, wanted.len() as u64 + 4);
}

#[tokio::test]
async fn what_a_killed_worker_left_half_is_not_shown_and_hides_nothing() {
    let pool = Pool::start().await;
    let _worker = pool.worker(1);
    for name in ["a", "b", "c"] {
        pool.submit(array(streamed(&pool, &format!("echo {name}")), name, 1, 1)).await;
        pool.wait_until_idle().await;
    }
    let index = files(&pool, "idx").pop().unwrap();
    let length = std::fs::metadata(&index).unwrap().len();
    assert_eq!(length, 3 * IndexEntry::LENGTH as u64);
    let file = std::fs::File::options().write(true).open(&index).unwrap();
    // The second entry is damaged, the last is truncated; the data of the first is damaged below.
    file.write_all_at(b"x", IndexEntry::LENGTH as u64 + 20).unwrap();
    file.set_len(length - 1).unwrap();
    let folder = pool.path("logs");
    assert_eq!(output_of(&folder, RunSelector::Array("a", None), None), "a\n");
    assert_eq!(find(&folder, RunSelector::Array("b", None)).unwrap().damaged_entries, 1);
    assert!(find(&folder, RunSelector::Array("c", None)).unwrap().runs.is_empty());
    let bytes = std::fs::File::options().write(true).open(files(&pool, "out").pop().unwrap());
    bytes.unwrap().write_all_at(b"x", 0).unwrap();
    let run = find(&folder, RunSelector::Array("a", None)).unwrap().runs.pop().unwrap();
    let copied = run.copy(None, &mut Vec::new()).unwrap();
    assert_eq!((copied.bytes, copied.lost), (0, 2));
}

#[tokio::test]
async fn a_script_without_its_output_is_not_done() {
    let pool = Pool::start().await;
    let _worker = pool.worker(1);
    let mut client = pool.client().await;
    let uid = eventually(async || match client.request(&ClientRequest::Status).await.unwrap() {
        ServerReply::Status(status) => status.workers.first().map(|worker| worker.uid.clone()),
        other => panic!("{other:?}"),
    });
    let data = format!("logs/{}.out", uid.await);
    std::fs::create_dir(pool.path("logs")).unwrap();
    // Every write fails, as on a full disk.
    std::os::unix::fs::symlink("/dev/full", pool.path(&data)).unwrap();
    let (id, submission) = once(streamed(&pool, "echo hello; exit 0"));
    pool.submit(submission).await;
    let unit = pool.wait_for_end(id).await;
    let failure = unit.failure.expect("it has failed");
    assert_eq!((unit.state, failure.code.as_str()), (UnitState::Failed, "unrecorded"));
    let words = format!("6 bytes of output were not stored in {}: No space", pool.path(&data).display());
    assert!(failure.message.contains(&words), "{failure}");
}
