//! Initial data folders of servers. They take a second or two to create and are always the same. If
//! `LONGSHORE_TEMPLATES` names a folder, which the servers' user must be able to read, tests create them
//! there once and copy them.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{os_user, run};

/// Creates the folder `data` in `folder`, by a copy of the template or by `make`.
pub(super) fn fill(
    name: &str,
    folder: &TempDir,
    make: impl Fn(&TempDir) -> io::Result<()>,
) -> io::Result<()> {
    let Some(templates) = std::env::var_os("LONGSHORE_TEMPLATES").map(PathBuf::from) else {
        return make(folder);
    };
    let template = templates.join(name);
    // The first process creates the template; the others wait for the lock.
    let lock = File::create(templates.join(format!("{name}.lock")))?;
    lock.lock()?;
    if !template.exists() {
        // Created beside the template, so that it can be renamed.
        let new = tempfile::Builder::new().prefix("longshore-template-").tempdir_in(&templates)?;
        os_user::chown_to_server(new.path())?;
        make(&new)?;
        std::fs::rename(new.path().join("data"), &template)?;
    }
    drop(lock);
    let mut copy = os_user::command(Path::new("/bin/cp"), folder.path());
    copy.arg("--archive").arg(template).arg(folder.path().join("data"));
    run(copy).map(drop)
}
