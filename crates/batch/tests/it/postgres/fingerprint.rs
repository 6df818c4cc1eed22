//! What identifies a database.

use std::net::{IpAddr, Ipv4Addr};

use longshore_batch::rows::{DatabaseFingerprint, is_same_database, open};

use super::{directly, through_a_pooler};
use crate::remote::TestDatabase;

async fn fingerprint(url: &str) -> DatabaseFingerprint {
    open(url).unwrap().fingerprint().await.unwrap().unwrap()
}

#[tokio::test]
async fn a_database_has_one_fingerprint_by_every_address_and_others_have_others() {
    let mut database = through_a_pooler();
    let server = database.server.url();
    let known = fingerprint(&server).await;
    assert_eq!(known, fingerprint(&server.replace("127.0.0.1", "localhost")).await);
    assert_eq!(known, fingerprint(&database.url).await, "through a pooler");
    database.run("CREATE DATABASE other");
    database.run("CREATE SCHEMA barco");
    let other = database.server.url_at(IpAddr::V4(Ipv4Addr::LOCALHOST), "other");
    let schema = format!("{server}?options=-csearch_path%3Dbarco");
    for elsewhere in [other, schema] {
        assert_ne!(known, fingerprint(&elsewhere).await, "{elsewhere}");
    }
    database.server.restart().unwrap();
    assert_eq!(known, fingerprint(&server).await, "after a restart");
    assert!(
        known.to_string().starts_with("PostgreSQL database `longshore` schema `public` server `"),
        "{known}"
    );
}

#[tokio::test]
async fn a_copy_of_a_servers_files_is_another_database() {
    // Servers of tests are copies of one folder.
    let (server, copy) = (directly().server, directly().server);
    let source = |url: &str| open(url).unwrap();
    let store = source(&server.url());
    let by_name = source(&server.url().replace("127.0.0.1", "localhost"));
    assert!(is_same_database(&*store, &*by_name).await.unwrap());
    assert!(!is_same_database(&*store, &*source(&copy.url())).await.unwrap());
}
