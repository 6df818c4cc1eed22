//! `dispatch stop` from another machine, over a network that fails.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use longshore_testkit::fault_proxy::{FaultProxy, LinkFault};
use serde_json::{Value, json};

use super::fixture::PoolFixture;
use crate::support::{TIMEOUT, eventually};

/// Writes the clients' access file again, as a machine behind the proxy sees it, into a folder of its own.
fn access_behind(pool: &PoolFixture, proxy: &FaultProxy) -> String {
    let mut access: Value = serde_json::from_str(&pool.dir.read("pool/access.json")).unwrap();
    access.as_object_mut().unwrap().remove("beside");
    access["addresses"] = json!([proxy.address().to_string()]);
    let folder = pool.dir.path("remote");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
    let file = pool.dir.write("remote/access.json", access.to_string());
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o600)).unwrap();
    folder.to_str().unwrap().to_owned()
}

#[test]
fn a_broken_network_is_not_the_end_of_the_pool() {
    let pool = PoolFixture::start(&["--workers", "1", "--nthr", "1", "--listen", "127.0.0.1"]);
    let access: Value = serde_json::from_str(&pool.dir.read("pool/access.json")).unwrap();
    let proxy = FaultProxy::start(access["addresses"][0].as_str().unwrap()).unwrap();
    let folder = access_behind(&pool, &proxy);
    pool.submit("job.sh", "echo >> runs; until [ -e go ]; do sleep 0.05; done", &[]);
    pool.wait_for_lines("runs", 1);
    let mut stop = pool.dir.start(&["dispatch", "stop", "--dir", &folder]);
    pool.wait_for_status(|status| status["mood"] == "draining");
    proxy.set(LinkFault::Cut);
    std::thread::sleep(Duration::from_secs(1));
    assert!(stop.0.try_wait().unwrap().is_none(), "the pool still runs: {}", pool.dir.read("stderr"));
    proxy.heal();
    pool.dir.write("go", "");
    eventually(TIMEOUT, || (!pool.dir.path("pool/access.json").exists()).then_some(()));
    assert!(stop.0.try_wait().unwrap().is_none(), "its access file is still there");
    std::fs::remove_file(pool.dir.path("remote/access.json")).unwrap();
    assert_eq!(stop.ends_within(TIMEOUT), 0, "{}", pool.dir.read("stderr"));
    std::fs::remove_dir(pool.dir.path("remote")).unwrap();
    pool.assert_nothing_left();
}
