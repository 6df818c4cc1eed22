//! Files that a server begins with. They take a second or two to make and are always the same, so
//! tests that are told where to keep them make them once: `LONGSHORE_TEMPLATES` is a folder that the
//! servers' account can read.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{account, run};

/// Fills the folder `data` in `folder`: `make` does it in the folder that it is given, or did.
pub(super) fn fill(
    name: &str,
    folder: &TempDir,
    make: impl Fn(&TempDir) -> io::Result<()>,
) -> io::Result<()> {
    let Some(templates) = std::env::var_os("LONGSHORE_TEMPLATES").map(PathBuf::from) else {
        return make(folder);
    };
    let template = templates.join(name);
    // Who comes first makes it, and the others wait.
    let turn = File::create(templates.join(format!("{name}.lock")))?;
    turn.lock()?;
    if !template.exists() {
        // In the same folder: it is moved.
        let made = tempfile::Builder::new().prefix("longshore-template-").tempdir_in(&templates)?;
        account::give(made.path())?;
        make(&made)?;
        std::fs::rename(made.path().join("data"), &template)?;
    }
    drop(turn);
    let mut copy = account::command(Path::new("/bin/cp"), folder.path());
    copy.arg("--archive").arg(template).arg(folder.path().join("data"));
    run(copy).map(drop)
}
