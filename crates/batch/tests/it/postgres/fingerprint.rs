//! What identifies a database.

use std::net::{IpAddr, Ipv4Addr};

use longshore_batch::rows::{DatabaseFingerprint, SourceError, is_same_database, open};

use super::{directly, through_a_pooler};
use crate::remote::{TestDatabase, effect};

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

#[tokio::test]
async fn a_database_that_replaces_another_behind_the_same_address_is_neither_read_nor_written() {
    let database = directly();
    let line = "CREATE TABLE line (id INT PRIMARY KEY, note TEXT); INSERT INTO line VALUES (1)";
    database.run("CREATE DATABASE orders");
    database.server.run_in("orders", line).unwrap();
    let url = database.server.url_for("orders");
    let rows = open(&url).unwrap();
    let change = [effect("UPDATE line SET note = 'x' WHERE id = 1", &[], Some(1))];
    rows.apply(&change).await.unwrap();
    database.run("DROP DATABASE orders WITH (FORCE)");
    database.run("CREATE DATABASE orders");
    database.server.run_in("orders", line).unwrap();
    for error in [
        rows.fetch("SELECT * FROM line", &[]).await.unwrap_err(),
        rows.apply(&change).await.unwrap_err(),
        rows.fingerprint().await.unwrap_err(),
    ] {
        assert!(matches!(error, SourceError::WrongDatabase { .. }), "{error:?}");
    }
    assert_eq!(database.server.run_in("orders", "SELECT count(note) FROM line").unwrap().trim(), "0");
    open(&url).unwrap().apply(&change).await.unwrap();
}

#[tokio::test]
async fn a_pooler_that_leads_to_another_database_is_noticed_when_it_is_asked_again() {
    let database = through_a_pooler();
    let rows = open(&database.url).unwrap();
    let known = rows.fingerprint().await.unwrap();
    assert_eq!(rows.fingerprint().await.unwrap(), known);
    // The connection to the pooler stays; what is behind it looks up names elsewhere.
    database.run("CREATE SCHEMA barco; ALTER ROLE longshore SET search_path = barco");
    database.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()
         AND backend_type = 'client backend'",
    );
    let noticed = async {
        loop {
            match rows.fingerprint().await {
                Err(SourceError::WrongDatabase { .. }) => return,
                // A session ends a moment after it was told to.
                Ok(found) => assert_eq!(found, known),
                Err(_) => {}
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), noticed).await.unwrap();
}
