//! Verification of the server's TLS certificate.

use std::process::Command;

use longshore_testkit::servers::PrivateRedis;
use tokio::task::block_in_place;

use crate::helpers::{ask, open_redis, pool, until_granted, wait};
use longshore_core::permits::Permits as _;

const URL: &str = "LONGSHORE_TEST_REDIS";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_believed_whose_certificate_is_signed_by_an_authority() {
    let server = block_in_place(|| PrivateRedis::start_secure().unwrap());
    let error = open_redis(&server.tls_url()).check().await.unwrap_err();
    assert!(error.to_string().contains("certificate verification failed"), "{error:?}");
    assert!(!error.is_retryable(), "{error:?}");
    // The trusted authorities are read once per process, so another process is needed.
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "tls::permits_through_tls", "--ignored"]);
    command.env("SSL_CERT_FILE", server.ca_certificate()).env(URL, server.tls_url());
    let run = block_in_place(|| command.output().unwrap());
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process of the test above, which starts it"]
async fn permits_through_tls() {
    let permits = open_redis(&std::env::var(URL).unwrap());
    let mine = wait(std::time::Duration::from_millis(10));
    until_granted(&permits, &mine).await;
    permits.release(pool(), &[mine.id], false).await.unwrap();
    permits.acquire(pool(), &ask(std::time::Duration::from_millis(10))).await.unwrap();
}
