//! The guarantees of `sslmode`.

use longshore_batch::rows::open;
use longshore_testkit::servers::PrivatePostgres;

#[tokio::test]
async fn sslmode_is_kept() {
    let server = PrivatePostgres::start_with_tls().unwrap();
    let own = format!("sslrootcert={}", server.ca_certificate().display());
    let by_name = server.url().replace("127.0.0.1", "localhost");
    for (url, options, words) in [
        (server.url(), "", Ok(true)),
        (server.url(), "sslmode=disable", Ok(false)),
        (server.url(), "sslmode=require", Ok(true)),
        (server.url(), &*format!("sslmode=verify-ca&{own}"), Ok(true)),
        (by_name.clone(), &*format!("sslmode=verify-full&{own}"), Ok(true)),
        (server.url(), &*format!("sslmode=verify-full&{own}"), Err("not valid for name")),
        (by_name.clone(), "sslmode=verify-full", Err("UnknownIssuer")),
        (by_name, "sslmode=verify-ca&sslrootcert=system", Err("UnknownIssuer")),
    ] {
        let secure = secure(&format!("{url}?{options}")).await;
        match words {
            Ok(expected) => assert_eq!(secure, Ok(expected), "{options}"),
            Err(words) => assert!(secure.clone().is_err_and(|e| e.contains(words)), "{secure:?}"),
        }
    }
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_tls_is_required() {
    let server = PrivatePostgres::start().unwrap();
    assert_eq!(secure(&server.url()).await, Ok(false));
    let error = secure(&format!("{}?sslmode=require", server.url())).await.unwrap_err();
    assert!(error.contains("does not support TLS"), "{error}");
    let error = open("postgres://me@db/x?sslmode=verify-ca&sslrootcert=/nowhere").err().unwrap();
    assert!(error.to_string().contains("sslrootcert: /nowhere: "), "{error}");
}

/// Whether the server reports an encrypted connection.
async fn secure(url: &str) -> Result<bool, String> {
    let rows = open(url).map_err(|error| error.to_string())?;
    let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let found = rows.fetch(sql, &[]).await.map_err(|error| error.to_string())?;
    Ok(found[0].columns[0].1 == longshore::SqlValue::Bool(true))
}
