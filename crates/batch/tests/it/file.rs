//! Reading a batch file into a definition; every mistake gives one clear error.

mod commands;
mod errors;
mod parsed;

use std::path::Path;

use longshore::Timestamp;
use longshore_batch::file::{BatchFile, FileError, LoadedBatchFile, Overrides};
use tempfile::TempDir;

/// A file with every key.
pub(crate) const FULL: &str = r#"type = "po-review"
tenant = "acme"
database = "sqlite:orders.db"
seed = "seed.sql"
workers = 8
on_lost = "fail"
deadline = "8h"

[candidates]
sql = """
SELECT po_line_id, priority FROM po_lines
WHERE review_status = 'PENDING' AND created_at >= :since;
"""
key = "po_line_id"
priority = "priority"
limit = 500
claim = "po-lines"
ahead = 2000

[candidates.params]
since = "2026-01-01"

[pre]
sql = "SELECT * FROM po_lines WHERE po_line_id = :key"
prompt_file = "prompt.md"

[pre.lists]
history = "SELECT qty FROM po_lines WHERE vendor = (SELECT vendor FROM po_lines WHERE po_line_id = :key)"

[ai]
profile = "reviewer"
system = "You review orders."
max_tokens = 300
temperature = 0.5
timeout = "30s"
schema_file = "verdict.schema.json"

[profiles.reviewer]
provider = "scripted"
model = "reviewer-1"
script = "reviewer.toml"
delay = "20ms"
prices = { input = 0.8, output = 4.0 }

[post]
always = "INSERT INTO log (line, status) VALUES (:key, :status)"
success = ["UPDATE po_lines SET verdict = :verdict WHERE po_line_id = :key", { sql = "DELETE FROM todo WHERE line = :key", rows = 1 }]
fail = "UPDATE po_lines SET error = :error_code WHERE po_line_id = :key; DELETE FROM todo WHERE line = :key"

[[post.rules]]
when = "answer.confidence < 0.5"
then = "RETRY"
reason = "not sure: {{ answer.confidence }}"
after = "10s"

[retry]
attempts = 4
base = "2s"
cap = "5m"

[failures]
limit = "5%"
then = "fail"

[completion]
command = ["./notify.sh", "--now"]

[alerts]
no_progress = "10m"
http = "http://alerts.example/batch"
"#;

/// The smallest valid file.
pub(crate) const SMALL: &str = r#"type = "small"

[candidates]
sql = "SELECT id FROM t"
key = "id"

[pre]
sql = "SELECT * FROM t WHERE id = :key"
prompt = "{{ id }}?"

[ai]
profile = "echo"
"#;

const BESIDE: [(&str, &str); 6] = [
    ("seed.sql", "CREATE TABLE po_lines (po_line_id INTEGER);"),
    ("prompt.md", "Is {{ qty }} right?\n{% for h in history %}\n- {{ h.qty }}\n{% endfor %}\n"),
    ("verdict.schema.json", r#"{"properties": {"verdict": {}, "confidence": {"type": "number"}}}"#),
    ("reviewer.toml", "[[answer]]\nreply = '{\"verdict\": \"ok\", \"confidence\": 1}'\n"),
    ("candidates.sql", "-- which\nSELECT id FROM t\n"),
    ("notify.sh", "#!/bin/sh\n"),
];

/// A folder with `text` as its batch file, and the files that [`FULL`] names.
pub(crate) fn folder(text: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    for (name, text) in BESIDE.into_iter().chain([("batch.toml", text)]) {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

pub(crate) fn load(dir: &Path, overrides: &Overrides) -> Result<LoadedBatchFile, FileError> {
    BatchFile::load(dir, overrides)
}

/// Reads `text` in a folder of its own, without overrides.
pub(crate) fn read(text: &str) -> Result<LoadedBatchFile, FileError> {
    load(folder(text).path(), &noon())
}

pub(crate) fn noon() -> Overrides {
    let now = Timestamp::parse("2026-11-15T12:00:00Z").unwrap();
    Overrides { now: Some(now), ..Overrides::default() }
}

pub(crate) fn with_params(params: &[(&str, &str)]) -> Overrides {
    let params = params.iter().map(|&(name, value)| (name.into(), value.into())).collect();
    Overrides { params, ..noon() }
}
