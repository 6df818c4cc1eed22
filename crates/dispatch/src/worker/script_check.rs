//! Checks whether a script may run: it must be a readable regular file inside an allowed root, by a
//! path without unusual characters.

use std::path::{Path, PathBuf};

use longshore_trusted_path::{Symlinks, open_regular};

/// Checks a script and returns its real path.
pub(super) fn check(path: &Path, roots: &[PathBuf]) -> Result<PathBuf, String> {
    let shown = path.display();
    if !path.is_absolute() {
        return Err(format!("script {shown} is not an absolute path"));
    }
    if let Some(forbidden) = forbidden_character(path) {
        return Err(format!("script {shown:?} has {forbidden:?} in its path"));
    }
    let real = path.canonicalize();
    let inside =
        |path: &Path| roots.iter().any(|root| root.canonicalize().is_ok_and(|root| path.starts_with(root)));
    // The same answer for all files outside, so that a submitter does not learn whether one exists. A
    // missing file is inside if its folder is.
    let is_inside = match &real {
        Ok(real) => inside(real),
        Err(_) => {
            path.parent().and_then(|folder| folder.canonicalize().ok()).is_some_and(|real| inside(&real))
        }
    };
    if !roots.is_empty() && !is_inside {
        let roots: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
        return Err(format!("script {shown} is not inside {}", roots.join(" or ")));
    }
    let real = real.map_err(|error| format!("script {shown}: {error}"))?;
    open_regular(&real, Symlinks::Reject).map_err(|error| format!("script {shown}: {error}"))?;
    Ok(real)
}

/// Letters and digits of any alphabet are allowed. Characters that a shell or a terminal could
/// interpret are not.
fn forbidden_character(path: &Path) -> Option<char> {
    let Some(text) = path.to_str() else { return Some(char::REPLACEMENT_CHARACTER) };
    text.chars().find(|c| !(c.is_alphanumeric() || "/._-+=,@%: ".contains(*c)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_inside_its_root_may_run() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("job 1.sh");
        std::fs::write(&script, "exit 0").unwrap();
        let roots = [folder.path().to_path_buf()];
        assert_eq!(check(&script, &roots).unwrap(), script.canonicalize().unwrap());
        assert!(check(&script, &[]).is_ok());
    }

    #[test]
    fn a_pipe_does_not_block_and_nothing_is_said_about_files_outside_the_roots() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let roots = [inner.clone()];
        for pipe in [folder.path().join("pipe"), inner.join("pipe")] {
            use rustix::fs::{CWD, FileType, Mode, mknodat};
            mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        }
        assert!(check(&inner.join("pipe"), &roots).unwrap_err().contains("not a regular file"));
        std::os::unix::fs::symlink(folder.path(), inner.join("out")).unwrap();
        for outside in
            ["pipe", "missing", "inner/../missing", "inner/missing/../../pipe", "inner/out/missing"]
        {
            let error = check(&folder.path().join(outside), &roots).unwrap_err();
            assert!(error.contains("is not inside"), "{error}");
        }
    }

    #[test]
    fn what_must_not_run_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let (inner, outer) = (folder.path().join("inner"), folder.path().join("job.sh"));
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(&outer, "exit 0").unwrap();
        std::os::unix::fs::symlink(&outer, inner.join("link.sh")).unwrap();
        std::fs::write(inner.join("a;b.sh"), "exit 0").unwrap();
        let roots = [inner.clone()];
        for (script, expected) in [
            (PathBuf::from("job.sh"), "not an absolute path"),
            (outer, "is not inside"),
            (inner.join("link.sh"), "is not inside"),
            (inner.join("../job.sh"), "is not inside"),
            (inner.join("a;b.sh"), "';' in its path"),
            (inner.join("missing.sh"), "No such file"),
            (inner.clone(), "not a regular file"),
        ] {
            let error = check(&script, &roots).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
