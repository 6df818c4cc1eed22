//! Several kinds of workers in one pool.

use serde_json::{Value, json};

use super::fixture::{POOL_TIMEOUT, PoolFixture};
use crate::support::{eventually, stretch};

fn allocations(pool: &PoolFixture) -> Vec<Value> {
    pool.run(&["dispatch", "alloc", "list", "--json"]).ok().json().as_array().unwrap().clone()
}

fn names(pool: &PoolFixture) -> Vec<String> {
    allocations(pool).iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

fn workers_of(pool: &PoolFixture, name: &str) -> u64 {
    let all = allocations(pool);
    let one = all.iter().find(|one| one["name"] == name).unwrap();
    one["explanation"]["here"].as_u64().unwrap()
}

#[test]
fn scripts_go_to_the_allocation_that_can_run_them() {
    let pool = PoolFixture::start(&["--workers", "1", "--nthr", "1"]);
    let gpu = pool.unit("gpu.sh", "echo gpu $LONGSHORE_RESOURCE_GPU >> ran", &["--resource", "gpu=1"]);
    let status = pool.wait_for_status(|status| status["unfit"][0]["unit"] == gpu.as_str());
    assert_eq!(status["workers"].as_array().unwrap().len(), 1);

    let add = ["dispatch", "alloc", "add", "big", "--max-workers", "2", "--nthr", "4"];
    let more = ["--resource", "gpu=2", "--idle", "1s"];
    let dry = pool.run(&[&add[..], &more, &["--dry-run"]].concat()).ok();
    assert!(dry.out.contains("--nthr 4") && dry.out.contains("gpu=2"), "{}", dry.out);
    assert_eq!(names(&pool), ["default"], "a dry run changes nothing");
    pool.run(&[&add[..], &more].concat()).ok();
    pool.run(&[&add[..], &more].concat()).ends(1).says("there is an allocation `big` already");

    pool.wait_for_lines("ran", 1);
    assert_eq!(pool.lines("ran"), ["gpu 0"]);
    // One thread fits the worker that is there; no other is launched for it.
    pool.wait_for_status(|status| status["workers"].as_array().unwrap().len() == 1);
    assert_eq!(pool.wait_for("one.sh", "true", &[]).0, 0);
    eventually(stretch(POOL_TIMEOUT), || {
        (workers_of(&pool, "default") == 1 && workers_of(&pool, "big") == 0).then_some(())
    });
    assert_eq!(pool.wait_for("wide.sh", "true", &["--nthr", "4"]).0, 0);

    pool.wait_for_workers(1);
    pool.run(&["dispatch", "alloc", "pause", "big"]).ok();
    let waiting = pool.unit("wide.sh", "true", &["--nthr", "4"]);
    assert_eq!(pool.wait_for("one.sh", "true", &[]).0, 0, "others run");
    assert_eq!(pool.run(&["unit", "show", &waiting, "--json"]).ok().json()["state"], "ready");
    // The next server knows it, and that it is paused.
    pool.kill_server();
    pool.start_server().ok();
    assert_eq!(
        (names(&pool), &allocations(&pool)[1]["paused"]),
        (vec!["default".into(), "big".into()], &json!(true))
    );
    pool.run(&["dispatch", "alloc", "resume", "big"]).ok();
    pool.wait_until_idle();

    pool.run(&["dispatch", "alloc", "remove", "default"])
        .ends(1)
        .says("the allocation that the pool was started with stays");
    pool.run(&["dispatch", "alloc", "remove", "bug"])
        .ends(1)
        .says("there is no allocation `bug`; there are default, big");
    let dry = pool.run(&["dispatch", "alloc", "remove", "big", "--dry-run", "--json"]).ok().json();
    assert_eq!(dry["allocation"], "big");
    pool.run(&["dispatch", "alloc", "remove", "big"]).ok();
    eventually(stretch(POOL_TIMEOUT), || (names(&pool) == ["default"]).then_some(()));
    pool.wait_for_workers(1);
    pool.stop();
}

#[test]
fn an_allocation_is_scaled_by_its_name_and_its_scripts_end_before_it_is_removed() {
    let pool = PoolFixture::start(&["--workers", "1", "--nthr", "1"]);
    pool.run(&["dispatch", "alloc", "add", "wide", "--workers", "1", "--nthr", "2"]).ok();
    pool.wait_for_workers(2);
    pool.run(&["dispatch", "scale", "2", "--alloc", "wide"]).ok();
    pool.wait_for_workers(3);
    let unit = pool.unit("slow.sh", "touch began; until [ -e go ]; do sleep 0.05; done", &["--nthr", "2"]);
    eventually(stretch(POOL_TIMEOUT), || pool.dir.path("began").exists().then_some(()));
    pool.run(&["dispatch", "alloc", "remove", "wide"]).ok();
    pool.wait_for_workers(2);
    assert_eq!(allocations(&pool)[1]["is_leaving"], true);
    pool.dir.write("go", "");
    let ended = pool.run(&["unit", "wait", &unit, "--json"]).ok().json();
    assert_eq!(ended["attempt"], 1);
    eventually(stretch(POOL_TIMEOUT), || (names(&pool) == ["default"]).then_some(()));
    pool.stop();
}

#[test]
fn no_worker_is_launched_for_scripts_that_none_can_run() {
    let pool = PoolFixture::start(&["--workers", "0", "--max-workers", "3", "--nthr", "1"]);
    let wide = pool.unit("wide.sh", "true", &["--nthr", "4"]);
    pool.wait_for_status(|status| status["unfit"][0]["unit"] == wide.as_str());
    assert_eq!(pool.wait_for("one.sh", "true", &[]).0, 0);
    let launches: Value = serde_json::from_str(&pool.dir.read("pool/state/launches.json")).unwrap();
    assert_eq!(launches["to"], 1, "{launches}");
    pool.run(&["unit", "cancel", &wide]).ok();
    pool.stop();
}
