//! Keys of all types: each page begins exactly where the one before ended.

use longshore_batch::Definition;
use longshore_batch::check::candidate_keys;
use longshore_batch::file::SourceMap;
use longshore_batch::rows::SourceError;

use super::{directly, through_a_pooler};
use crate::remote::{TestDatabase, by_id, int, page, pages_agree, text};

#[tokio::test]
async fn keys_of_other_types_keep_their_order() {
    let database = through_a_pooler();
    database.run("CREATE TYPE size AS ENUM ('small', 'medium', 'large', 'huge')");
    database.run("CREATE DOMAIN code AS INT");
    for (kind, values, keys) in [
        (
            "NUMERIC(38, 20)",
            "(123456789012345678.00000000000000000002), (-1.5), (123456789012345678.00000000000000000001), (0)",
            [
                text("-1.50000000000000000000"),
                text("0.00000000000000000000"),
                text("123456789012345678.00000000000000000001"),
                text("123456789012345678.00000000000000000002"),
            ],
        ),
        (
            "TIMESTAMP",
            "('2026-01-02 03:04:05.000002'), ('2026-01-02 03:04:05.000001'), ('1999-12-31'), ('2026-10-02')",
            [
                text("1999-12-31 00:00:00"),
                text("2026-01-02 03:04:05.000001"),
                text("2026-01-02 03:04:05.000002"),
                text("2026-10-02 00:00:00"),
            ],
        ),
        ("INT", "(10), (9), (-1), (100)", [int(-1), int(9), int(10), int(100)]),
        ("CHAR(8)", "('ab'), ('a'), ('b'), ('aa')", [text("a"), text("aa"), text("ab"), text("b")]),
        ("code", "(10), (9), (-1), (100)", [int(-1), int(9), int(10), int(100)]),
        (
            "UUID",
            "('a0000000-0000-0000-0000-000000000000'), ('B0000000-0000-0000-0000-000000000000'),
             ('00000000-0000-0000-0000-00000000000F'), ('00000000-0000-0000-0000-00000000000a')",
            [
                text("00000000-0000-0000-0000-00000000000a"),
                text("00000000-0000-0000-0000-00000000000f"),
                text("a0000000-0000-0000-0000-000000000000"),
                text("b0000000-0000-0000-0000-000000000000"),
            ],
        ),
        (
            "size",
            "('small'), ('medium'), ('large'), ('huge')",
            [text("huge"), text("large"), text("medium"), text("small")],
        ),
    ] {
        database.run(&format!("CREATE TABLE k (id {kind}); INSERT INTO k VALUES {values}"));
        let found = pages_agree(&*database.rows(), &by_id("SELECT id FROM k")).await;
        assert_eq!(found, keys, "{kind}");
        database.run("DROP TABLE k");
    }
}

#[tokio::test]
async fn several_columns_make_a_key_of_text() {
    let database = directly();
    database.run("CREATE TABLE part (orders INT, line INT, PRIMARY KEY (orders, line))");
    database.run("INSERT INTO part SELECT o, l FROM generate_series(9, 11) o, generate_series(1, 2) l");
    let of = by_id("SELECT orders || '/' || line AS id FROM part");
    let found = pages_agree(&*database.rows(), &of).await;
    assert_eq!(found, ["10/1", "10/2", "11/1", "11/2", "9/1", "9/2"].map(text));
    let one = "SELECT line FROM part WHERE orders = split_part(:key, '/', 1)::int
               AND line = split_part(:key, '/', 2)::int";
    let row = database.rows().fetch(one, &[("key".to_owned(), text("11/2"))]).await.unwrap();
    assert_eq!(row[0].columns, [("line".to_owned(), int(2))]);
}

#[tokio::test]
async fn keys_that_name_no_row_are_refused() {
    let database = directly();
    database.run("CREATE TABLE k (id INT, raw BYTEA); INSERT INTO k VALUES (1, 'a'), (2, 'b'), (NULL, 'c')");
    let rows = database.rows();
    // NULL sorts last, but is found before the first page.
    let error = rows.candidates(&by_id("SELECT id FROM k"), None, 1).await.unwrap_err();
    assert!(error.to_string().contains("`id` is NULL"), "{error}");
    let error = rows.candidates(&by_id("SELECT raw AS id FROM k"), None, 1).await.unwrap_err();
    assert!(matches!(&error, SourceError::Data(words) if words.contains("bytes")), "{error:?}");
    let some = by_id("SELECT id FROM k WHERE id IS NOT NULL");
    assert_eq!(page(&*rows, &some, None, 1).await, [int(1)]);
}

#[tokio::test]
async fn a_page_of_numbers_is_read_by_the_index() {
    let database = directly();
    database.lines(5);
    database.run("INSERT INTO line (id) SELECT generate_series(6, 20000)");
    database.run("ANALYZE line");
    database.run("SELECT pg_stat_reset()");
    let rows = database.rows();
    let of = by_id("SELECT id FROM line WHERE status = 'open'");
    for from in [5, 10_000, 19_000] {
        assert_eq!(page(&*rows, &of, Some(&int(from)), 10).await.len(), 10);
    }
    drop(rows);
    // A session reports its statistics at its end.
    let ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'longshore'";
    while database.run(ours).trim() != "0" {
        tokio::task::yield_now().await;
    }
    // The planner may read the last key; all pages together are 30 rows.
    let read = "SELECT seq_scan, idx_tup_fetch < 100 FROM pg_stat_user_tables WHERE relname = 'line'";
    assert_eq!(database.run(read), "0\tt\n");
}

#[tokio::test]
async fn candidates_without_a_key_are_named() {
    let database = directly();
    database.run(
        "CREATE TABLE line (id INT, note TEXT); INSERT INTO line VALUES (1, 'a'), (NULL, 'b'), (2, 'c')",
    );
    let refused = async |sql: &str| {
        let definition = Definition { candidates: by_id(sql), ..crate::support::definition() };
        candidate_keys(&definition, &SourceMap::default(), &*database.rows()).await.unwrap_err().message
    };
    let words = refused("SELECT * FROM line").await;
    assert_eq!(words, "keys must not be NULL, but `id` is NULL in one candidate: it has `note` = `b`");
    let words = refused("SELECT id FROM line WHERE id IS NOT NULL UNION ALL SELECT 2").await;
    assert_eq!(words, "keys must be unique, but in `id` one key has several candidates: `2`");
}
