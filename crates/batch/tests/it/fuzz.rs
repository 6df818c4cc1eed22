//! Mutations of batch files: a definition or an error with its line, never a panic.

use longshore_batch::file::{BatchFile, Overrides};
use longshore_testkit::fuzz;

#[test]
fn fuzz_batch_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("batch.toml");
    fuzz(env!("CARGO_MANIFEST_DIR"), "batch-file", |bytes| {
        std::fs::write(&file, bytes).unwrap();
        if let Err(error) = BatchFile::load(&file, &Overrides::default()) {
            assert!(!error.to_string().is_empty());
        }
    });
}
