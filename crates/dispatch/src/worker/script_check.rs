//! Checks whether a script may run: it must be a readable regular file inside an allowed root, by a
//! path without unusual characters.

use std::fs::File;
use std::path::{Path, PathBuf};

/// Checks a script and returns its real path.
pub(super) fn check(path: &Path, roots: &[PathBuf]) -> Result<PathBuf, String> {
    let shown = path.display();
    if !path.is_absolute() {
        return Err(format!("script {shown} is not an absolute path"));
    }
    if let Some(forbidden) = forbidden_character(path) {
        return Err(format!("script {shown:?} has {forbidden:?} in its path"));
    }
    let real = path.canonicalize().map_err(|error| format!("script {shown}: {error}"))?;
    let inside = |root: &PathBuf| root.canonicalize().is_ok_and(|root| real.starts_with(root));
    if !roots.is_empty() && !roots.iter().any(inside) {
        let roots: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
        return Err(format!("script {shown} is not inside {}", roots.join(" or ")));
    }
    let file = File::open(&real).map_err(|error| format!("script {shown}: {error}"))?;
    match file.metadata() {
        Ok(facts) if facts.is_file() => Ok(real),
        Ok(_) => Err(format!("script {shown} is not a regular file")),
        Err(error) => Err(format!("script {shown}: {error}")),
    }
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
