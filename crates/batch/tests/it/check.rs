//! Checks of a definition against its database: every mistake is found before a row is touched.

mod invalid;
mod valid;

use std::path::Path;

use longshore_batch::check::{CheckReport, check};
use longshore_batch::file::{FileError, LoadedBatchFile, Overrides};
use longshore_batch::rows::{DatabaseRows, OpenMode};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::file::{folder, load};

/// A batch file with everything that the check covers.
pub(crate) const BATCH: &str = r#"type = "review"
database = "sqlite:orders.db"

[candidates]
sql = """
SELECT id, priority
FROM lines
WHERE status = 'open' AND qty > :least
"""
key = "id"
priority = "priority"

[candidates.params]
least = 0

[pre]
sql = "SELECT id, vendor, qty, price FROM lines WHERE id = :key"
prompt = """
Vendor {{ vendor }} wants {{ qty }} at {{ row.price }}.
{% for past in history %}
- {{ past.qty }} ({{ past.price | round(2) }})
{% endfor %}
"""

[pre.lists]
history = "SELECT qty, price FROM lines WHERE vendor = (SELECT vendor FROM lines WHERE id = :key)"

[ai]
profile = "reviewer"

[ai.schema]
type = "object"
additionalProperties = false

[ai.schema.properties]
verdict = { type = "string" }
confidence = { type = "number" }
status = { type = "string" }

[profiles.reviewer]
provider = "scripted"
script = "reviewer.toml"

[post]
always = "INSERT INTO log (line, status, batch) VALUES (:key, :status, :batch_id)"
success = """
UPDATE lines
SET verdict = :verdict, status = :answer_status, model = :model
WHERE id = :key;
DELETE FROM todo
WHERE line = :key
"""
fail = "UPDATE lines SET status = :error_code WHERE id = :key"

[[post.rules]]
when = "answer.confidence < 0.5"
then = "RETRY"
reason = "not sure: {{ answer.confidence }}"

[completion]
sql = "INSERT INTO log (line, status, batch) VALUES (NULL, :status, :batch_id)"

[alerts]
sql = "INSERT INTO log (line, status, batch) VALUES (NULL, :code, :batch_id)"
"#;

const SCHEMA: &str = "
CREATE TABLE lines (
    id INTEGER PRIMARY KEY, vendor TEXT, qty INTEGER, price REAL, priority INTEGER,
    status TEXT, verdict TEXT, model TEXT
);
INSERT INTO lines (id, vendor, qty, price, status) VALUES (1, 'Acme', 3, 2.5, 'open');
CREATE TABLE log (line INTEGER, status TEXT, batch TEXT);
CREATE TABLE todo (line INTEGER);
";

/// A folder with a batch file and its database.
pub(crate) struct Case {
    pub(crate) dir: TempDir,
    pub(crate) loaded: LoadedBatchFile,
}

impl Case {
    pub(crate) fn new(text: &str) -> Self {
        let dir = folder(text);
        let database = Connection::open(dir.path().join("orders.db")).unwrap();
        database.execute_batch(SCHEMA).unwrap();
        let loaded = load(dir.path(), &Overrides::default()).unwrap();
        Self { dir, loaded }
    }

    pub(crate) fn database(&self) -> std::path::PathBuf {
        self.dir.path().join("orders.db")
    }

    pub(crate) async fn check(&self) -> Result<CheckReport, FileError> {
        let source = open(&self.database());
        check(&self.loaded.definition, &self.loaded.source_map, &source).await
    }
}

pub(crate) fn open(path: &Path) -> DatabaseRows {
    DatabaseRows::sqlite(path, OpenMode::Read).unwrap()
}
