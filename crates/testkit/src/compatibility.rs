//! Versions of Longshore side by side: the released migrations, and those of a later version.

use longshore_core::migration::{Migration, Migrations};

/// `compatibility/baseline.toml`.
const BASELINE: &str = include_str!("../../../compatibility/baseline.toml");

/// A migration of a later version that older programs do not notice: it adds a column to every table of a snapshot
/// (`schema.sql`), and a table.
pub fn expansion(schema: &str) -> Migration {
    let tables = schema.lines().filter_map(|line| {
        let name =
            line.strip_prefix("CREATE TABLE ").or_else(|| line.strip_prefix("CREATE UNLOGGED TABLE "))?;
        name.split_whitespace().next()
    });
    let columns: String = tables
        .map(|table| format!("ALTER TABLE {table} ADD COLUMN added BIGINT NOT NULL DEFAULT 7;\n"))
        .collect();
    let sql = format!("{columns}CREATE TABLE longshore_added (id BIGINT PRIMARY KEY);");
    Migration { version: 1000, name: "expansion", sql: sql.leak(), min_compatible: 1 }
}

/// A migration after [`expansion`] that removes what older programs use.
pub const CONTRACTION: Migration = Migration {
    version: 1001,
    name: "contraction",
    sql: "DROP TABLE longshore_added;",
    min_compatible: 1000,
};

/// Asserts that the migrations which were released with the baseline are unchanged: databases out there have them.
///
/// # Panics
/// If one has changed.
#[track_caller]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub fn assert_released_migrations(store: &str, migrations: Migrations) {
    let prefix = format!("{store}_");
    let released = BASELINE.lines().filter_map(|line| line.strip_prefix(&prefix)?.split_once(" = "));
    let mut count = 0;
    for (version, checksum) in released {
        let known = migrations.0.iter().find(|known| known.version.to_string() == version).unwrap();
        let now = known.checksum();
        assert_eq!(
            checksum.trim_matches('"'),
            now,
            "migration {version} of {store} was released: add a migration instead of changing it"
        );
        count += 1;
    }
    assert!(count > 0, "compatibility/baseline.toml names no migration of {store}");
}
