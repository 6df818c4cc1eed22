//! Files that report the end of a script, for workflows that watch for them.

use super::fixture::PoolFixture;

#[test]
fn sentinels_say_what_the_program_itself_said_and_old_ones_are_gone_first() {
    let pool = PoolFixture::start(&["--workers", "1", "--nthr", "2"]);
    std::fs::create_dir(pool.dir.path("done")).unwrap();
    let here = |name: &str| pool.dir.path("done").join(name).exists();
    // Two successes, one failure hidden in a pipe, one script that is killed.
    let text = "[ ! -e done/JOB_FINISHED_$LONGSHORE_ARRAY_INDEX ] || echo old >> left\n\
                case $LONGSHORE_ARRAY_INDEX in 3) (exit 9) | tee log ;; 4) kill -9 $$ ;; esac";
    pool.dir.write("done/JOB_FINISHED_3", "");
    pool.dir.write("done/JOB_FINISHED_1", "");
    pool.dir.write("done/EXIT_CODE_JOB_4", "0\n");
    pool.dir.write("job.sh", text);
    let args = ["submit", "--script", "job.sh", "--array", "1-4", "--sentinels", "done", "--wait"];
    pool.run(&args).ends(3);
    let codes = [1, 2, 3, 4].map(|n| pool.dir.read(&format!("done/EXIT_CODE_JOB_{n}")));
    assert_eq!(codes, ["0\n", "0\n", "9\n", "137\n"]);
    let finished = [1, 2, 3, 4].map(|n| here(&format!("JOB_FINISHED_{n}")));
    assert_eq!(finished, [true, true, false, false]);
    assert_eq!(pool.dir.read("left"), "", "old ones are removed before a script begins");
    let files = std::fs::read_dir(pool.dir.path("done")).unwrap().count();
    assert_eq!(files, 6, "nothing else is left there");
    pool.stop();
}
