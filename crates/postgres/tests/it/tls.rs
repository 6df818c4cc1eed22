//! How a store verifies its server's certificate.

use longshore_postgres::{Listen, PostgresOptions, PostgresStore};
use longshore_testkit::servers::PrivatePostgres;

async fn open(url: &str, options: &str, listen: Listen) -> Result<PostgresStore, String> {
    let settings = PostgresOptions { listen, ..PostgresOptions::default() };
    let opened = PostgresStore::open(&format!("{url}?{options}"), settings).await;
    opened.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_store_checks_its_server_as_sslmode_says() {
    let server = PrivatePostgres::start_with_tls().unwrap();
    let own = format!("sslrootcert={}", server.ca_certificate().display());
    let by_name = server.url().replace("127.0.0.1", "localhost");
    // The first of two hosts does not answer.
    let second = |url: &str| url.replacen('@', "@localhost:1,", 1);
    let (second_by_name, second_by_address) = (second(&by_name), second(&server.url()));
    for (url, options, refused) in [
        (&server.url(), format!("sslmode=verify-ca&{own}"), None),
        (&by_name, format!("sslmode=verify-full&{own}"), None),
        (&server.url(), format!("sslmode=verify-full&{own}"), Some("not valid for name")),
        (&second_by_name, format!("sslmode=verify-full&{own}"), None),
        (&second_by_address, format!("sslmode=verify-full&{own}"), Some("not valid for name")),
        (&by_name, "sslmode=verify-full".to_owned(), Some("UnknownIssuer")),
        (&by_name, "sslmode=verify-ca&sslrootcert=/nowhere".to_owned(), Some("/nowhere")),
        (&by_name, "sslmode=sometimes".to_owned(), Some("sslmode is disable")),
    ] {
        match (open(url, &options, Listen::Off).await, refused) {
            (Ok(_), None) => {}
            (Err(error), Some(words)) => assert!(error.contains(words), "{error}"),
            (opened, _) => panic!("{options}: {:?}", opened.map(drop)),
        }
    }
}

#[tokio::test]
async fn a_store_checks_its_server_where_it_listens_too() {
    let server = PrivatePostgres::start_with_tls().unwrap();
    let by_name = server.url().replace("127.0.0.1", "localhost");
    let own = format!("sslmode=verify-full&sslrootcert={}", server.ca_certificate().display());
    let store = open(&by_name, &own, Listen::Auto).await.unwrap();
    let mut looks = 0;
    while !store.is_listening() {
        looks += 1;
        assert!(looks < 3_000, "its own notification never arrives");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
