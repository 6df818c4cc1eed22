//! Every type can be read, and written back unchanged.

use longshore::SqlValue;

use super::{directly, through_a_pooler};
use crate::remote::{self, TestDatabase, int, text};

#[tokio::test]
async fn types_are_kept_both_ways() {
    let database = directly();
    // Unusual server settings, none of which may matter.
    let settings = "datestyle = 'German, DMY'; ALTER ROLE longshore SET extra_float_digits = -15";
    database.run(&format!("ALTER ROLE longshore SET {settings}"));
    kept_both_ways(&database).await;
}

#[tokio::test]
async fn types_are_kept_both_ways_through_a_pooler() {
    kept_both_ways(&through_a_pooler()).await;
}

async fn kept_both_ways(database: &dyn TestDatabase) {
    database.run(OWN);
    database.run(&format!("CREATE TABLE kinds ({KINDS}); CREATE TABLE copies (LIKE kinds)"));
    database.run(&format!("INSERT INTO kinds VALUES {VALUES}"));
    let rows = database.rows();
    let read = remote::copy_row(&*rows, "kinds", "copies").await;
    let value = |name: &str| read.iter().find(|(known, _)| known == name).unwrap().1.clone();
    for (name, expected) in [
        ("small", int(i64::MIN)),
        ("tiny", int(-32768)),
        ("price", text("12345678901234567890.0123456789")),
        ("day", text("2026-02-28")),
        ("ever", text("infinity")),
        ("moment", text("2026-02-28 23:59:59.123456")),
        ("clock", text("23:59:58.5")),
        ("part", SqlValue::Real(0.1)),
        ("third", SqlValue::Real(1.0 / 3.0)),
        ("endless", SqlValue::Real(f64::NEG_INFINITY)),
        ("rough", SqlValue::Real(0.1)),
        ("words", text("Ünïcode 🦀 'quoted' \\ \"x\" :key ? $1")),
        ("bytes", SqlValue::Blob(vec![0, 255, 0xf0, 0x9f, 39, 92])),
        ("yes", SqlValue::Bool(true)),
        ("json", text(r#"{"a": [1, "ü"]}"#)),
        ("plain_json", text(r#"{"b":1,  "a":2}"#)),
        ("uuid", text("0190a0b0-0000-7000-8000-00000000002a")),
        ("list", text("{1,NULL,3}")),
        ("tags", text(r#"{"a b","\"",🦀}"#)),
        ("mood", text("so so")),
        ("moods", text(r#"{good,"so so"}"#)),
        ("count", int(7)),
        ("counts", text("{7,8}")),
        ("pair", text("(1,\"a b\")")),
        ("span", text("[1,5)")),
        ("address", text("10.0.0.0/8")),
        ("empty", SqlValue::Null),
        ("no_number", SqlValue::Null),
        ("no_bytes", SqlValue::Null),
        ("no_mood", SqlValue::Null),
        ("long", SqlValue::Text("ü🦀".repeat(5000))),
    ] {
        assert_eq!(value(name), expected, "{name}");
    }
    let SqlValue::Text(zoned) = value("zoned") else { panic!("{:?}", value("zoned")) };
    assert!(zoned.starts_with("2026-02-") && zoned.contains(":00:00.5+"), "{zoned}");
    let columns = read.iter().map(|(name, _)| format!("k.{name}::text IS NOT DISTINCT FROM c.{name}::text"));
    let columns: Vec<String> = columns.collect();
    let same = database.run(&format!("SELECT {} FROM kinds k, copies c", columns.join(", ")));
    assert!(same.trim().split('\t').all(|same| same == "t"), "{same} of {read:?}");
}

const OWN: &str = "CREATE TYPE mood AS ENUM ('good', 'so so');
    CREATE DOMAIN amount AS INT CHECK (VALUE > 0); CREATE DOMAIN few AS amount CHECK (VALUE < 10);
    CREATE TYPE pair AS (a INT, b TEXT)";
const KINDS: &str = "id BIGINT, small BIGINT, tiny SMALLINT, price NUMERIC(30, 10), day DATE,
    ever DATE, moment TIMESTAMP, zoned TIMESTAMPTZ, clock TIME, part DOUBLE PRECISION,
    third DOUBLE PRECISION, endless DOUBLE PRECISION, rough REAL, words VARCHAR(200),
    bytes BYTEA, yes BOOLEAN, json JSONB, plain_json JSON, uuid UUID, list INT[], tags TEXT[],
    mood mood, moods mood[], count few, counts few[], pair pair, span INT4RANGE, address CIDR,
    empty TEXT, no_number NUMERIC(9, 2), no_bytes BYTEA, no_mood mood, long TEXT";
const VALUES: &str = r#"(1, -9223372036854775808, -32768, 12345678901234567890.0123456789,
    '2026-02-28', 'infinity', '2026-02-28T23:59:59.123456', '2026-02-28T12:00:00.5+00',
    '23:59:58.5', 0.1, 1/3::float8, '-Infinity', 0.1, 'Ünïcode 🦀 ''quoted'' \ "x" :key ? $1',
    '\x00fff09f275c', TRUE, '{"a": [1, "ü"]}', '{"b":1,  "a":2}',
    '0190a0b0-0000-7000-8000-00000000002a', '{1,NULL,3}', ARRAY['a b', '"', '🦀'], 'so so',
    '{good,so so}', 7, '{7,8}', '(1,a b)', '[1,4]', '10.0.0.0/8', NULL, NULL, NULL, NULL,
    repeat('ü🦀', 5000))"#;
