//! What a script's submitter may choose on a worker with roots: paths inside the roots, and
//! environment variables that the operator listed. A worker without roots runs the operator's own
//! scripts, restricts nothing and refuses those of tenants.
//!
//! Paths below a root are opened component by component, without following symbolic links, so that
//! no link can be placed between the check and the use. Output can be written only to files named
//! `*.out`, `*.err` or `*.log`, and no script with such a name is run: otherwise a submitter could
//! write a script into the root with the output of another, and run it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use longshore::Rights;
use longshore_trusted_path::{check_parents, check_unwritable};
use rustix::fs::{CWD, Mode, OFlags, fcntl_setfl, ftruncate, mkdirat, openat};
use rustix::io::Errno;

use super::options::DispatchWorkerError;
use super::script_check;
use crate::script::Script;
use crate::stream::{DATA_EXTENSION, INDEX_EXTENSION};

/// Extensions of files that output is written to.
const OUTPUT_EXTENSIONS: [&str; 4] = [DATA_EXTENSION, "err", "log", INDEX_EXTENSION];

/// Variables that make bash or the dynamic loader run other code, or that the worker sets itself. A
/// name that ends with `*` is a prefix.
const FORBIDDEN_ENV: [&str; 14] = [
    "BASH*",
    "CDPATH",
    "DYLD_*",
    "ENV",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "IFS",
    "LD_*",
    "LOCPATH",
    "LONGSHORE_*",
    "PATH",
    "PROMPT_COMMAND",
    "PS4",
    "SHELLOPTS",
];

/// The restrictions of a worker.
#[derive(Debug)]
pub(super) struct Boundary {
    roots: Vec<Root>,
    allowed_env: BTreeSet<String>,
}

#[derive(Debug)]
struct Root {
    /// The path as the operator wrote it, made absolute.
    given: PathBuf,
    real: PathBuf,
}

/// What to do with the content of an existing output file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExistingContent {
    Truncate,
    Keep,
}

fn check_sentinel_name(script: &Script) -> Result<(), String> {
    let has_slash = script.name.as_ref().is_some_and(|name| name.contains('/'));
    match script.sentinels.is_some() && has_slash {
        true => Err("a script with sentinel files has `/` in its name".into()),
        false => Ok(()),
    }
}

fn check_folder(dir: &Path) -> Result<(), String> {
    match dir.is_dir() {
        true => Ok(()),
        false => Err(format!("there is no working directory {}", dir.display())),
    }
}

impl Boundary {
    /// Checks the roots, which no other user may be able to write to, and the variables.
    pub(super) fn new(roots: &[PathBuf], allowed_env: &[String]) -> Result<Self, DispatchWorkerError> {
        if let Some(name) = allowed_env.iter().find(|name| is_forbidden(name)) {
            return Err(DispatchWorkerError::ForbiddenVariable(name.clone()));
        }
        let roots = roots.iter().map(|root| Root::open(root)).collect::<Result<_, _>>()?;
        Ok(Self { roots, allowed_env: allowed_env.iter().cloned().collect() })
    }

    /// Refuses a tenant's script if there are no roots.
    pub(super) fn check_rights(&self, rights: Rights) -> Result<(), String> {
        match rights {
            Rights::Tenant if self.roots.is_empty() => {
                Err("this worker has no roots, so it runs no tenant's scripts (`--root`)".into())
            }
            Rights::Tenant | Rights::Operator => Ok(()),
        }
    }

    /// Checks a script and what its submitter chose. Returns the script's real path.
    pub(super) fn check(&self, script: &Script) -> Result<PathBuf, String> {
        if script.text.is_some() {
            return self.check_text(script);
        }
        // Nothing outside the roots is opened.
        let roots: Vec<PathBuf> = self.roots.iter().map(|root| root.real.clone()).collect();
        let real = script_check::check(&script.path, &roots)?;
        let own_root: Vec<PathBuf> = script.root.iter().cloned().collect();
        let path = script_check::check(&real, &own_root)?;
        check_sentinel_name(script)?;
        if !self.roots.is_empty() {
            self.check_inside(script, &path)?;
            self.check_env(&script.env)?;
        } else {
            check_folder(&script.dir)?;
        }
        Ok(path)
    }

    /// Checks a script that was submitted as text. Returns its `$0`.
    fn check_text(&self, script: &Script) -> Result<PathBuf, String> {
        if !self.roots.is_empty() {
            return Err("this worker has roots: it runs files inside them, no commands and no stored \
                        scripts (`--root`)"
                .into());
        }
        check_sentinel_name(script)?;
        check_folder(&script.dir)?;
        Ok(script.path.clone())
    }

    fn check_inside(&self, script: &Script, real: &Path) -> Result<(), String> {
        if has_output_extension(real) {
            return Err(format!("script {} has the name of an output file", real.display()));
        }
        let metadata = real.metadata().map_err(|error| format!("script {}: {error}", real.display()))?;
        check_unwritable(real, &metadata)
            .and_then(|()| check_parents(real))
            .map_err(|error| format!("the script is not safe from other users: {error}"))?;
        let dir = self.open_folder(&script.dir);
        dir.map(drop).map_err(|error| format!("working directory {}: {error}", script.dir.display()))
    }

    fn check_env(&self, env: &BTreeMap<String, String>) -> Result<(), String> {
        match env.keys().find(|name| !self.allowed_env.contains(*name)) {
            Some(name) => Err(format!("this worker does not allow variable {name} (`--allow-env`)")),
            None => Ok(()),
        }
    }

    /// Opens a file for output, and creates it and its folder if necessary.
    pub(super) fn open_output(&self, path: &Path, existing: ExistingContent) -> io::Result<File> {
        if self.roots.is_empty() {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let truncate = existing == ExistingContent::Truncate;
            return OpenOptions::new().create(true).write(true).truncate(truncate).open(path);
        }
        if !has_output_extension(path) {
            return Err(io::Error::other("the name of an output file must end with .out, .err or .log"));
        }
        let (folder, name) = self.open_parent(path)?;
        // Without blocking: a pipe would wait for a reader.
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&folder, name, flags, Mode::RUSR | Mode::WUSR).map_err(explain)?);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other("it belongs to another user"));
        }
        fcntl_setfl(&file, OFlags::empty())?;
        if existing == ExistingContent::Truncate {
            ftruncate(&file, 0)?;
        }
        Ok(file)
    }

    /// Opens the folder of a path inside a root, and creates what is missing of it.
    fn open_parent<'a>(&self, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::other("not the path of a file"));
        };
        Ok((self.walk(folder, Missing::Create)?, name))
    }

    /// Opens a folder, which must be inside a root if there are roots.
    pub(super) fn open_folder(&self, path: &Path) -> io::Result<OwnedFd> {
        if self.roots.is_empty() {
            return Ok(openat(CWD, path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?);
        }
        self.walk(path, Missing::Fail)
    }

    fn walk(&self, path: &Path, missing: Missing) -> io::Result<OwnedFd> {
        let Some((root, relative)) = self.roots.iter().find_map(|root| root.relative(path)) else {
            let roots: Vec<String> = self.roots.iter().map(|root| root.given.display().to_string()).collect();
            return Err(io::Error::other(format!("it is not inside {}", roots.join(" or "))));
        };
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut folder = openat(CWD, &root.real, flags, Mode::empty())?;
        for component in relative.components() {
            let Component::Normal(name) = component else {
                return Err(io::Error::other("it has `..` in its path"));
            };
            if missing == Missing::Create {
                match mkdirat(&folder, name, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            folder = openat(&folder, name, flags, Mode::empty()).map_err(explain)?;
        }
        Ok(folder)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Create,
    Fail,
}

impl Root {
    fn open(path: &Path) -> Result<Self, DispatchWorkerError> {
        let failed = |error| DispatchWorkerError::Root(path.to_path_buf(), error);
        let io = longshore_trusted_path::PathError::io(path);
        let given = std::path::absolute(path).map_err(&io).map_err(failed)?;
        let real = path.canonicalize().map_err(&io).map_err(failed)?;
        // As a parent of its entries, so that the root itself is checked too.
        check_parents(&real.join("entry")).map_err(failed)?;
        Ok(Self { given, real })
    }

    fn relative<'a>(&self, path: &'a Path) -> Option<(&Self, &'a Path)> {
        let relative = path.strip_prefix(&self.real).or_else(|_| path.strip_prefix(&self.given));
        relative.ok().map(|relative| (self, relative))
    }
}

fn has_output_extension(path: &Path) -> bool {
    path.extension().is_some_and(|extension| OUTPUT_EXTENSIONS.iter().any(|output| *output == extension))
}

fn is_forbidden(name: &str) -> bool {
    FORBIDDEN_ENV.iter().any(|forbidden| match forbidden.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == *forbidden,
    })
}

/// Opening a symbolic link fails with these errors.
fn explain(error: Errno) -> io::Error {
    match error {
        Errno::LOOP | Errno::NOTDIR => io::Error::other("it leads through a symbolic link or a file"),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn boundary(root: &Path) -> Boundary {
        Boundary::new(&[root.to_path_buf()], &["SEED".to_owned()]).unwrap()
    }

    #[test]
    fn output_inside_a_root_is_private_and_no_link_leads_out() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::create_dir_all(&root).unwrap();
        symlink(&outside, root.join("link")).unwrap();
        symlink(outside.join("x.log"), root.join("x.log")).unwrap();
        let boundary = boundary(&root);
        let open = |path: &Path| boundary.open_output(path, ExistingContent::Truncate);
        let file = open(&root.join("logs/today/1.out")).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(root.join("logs/today").metadata().unwrap().mode() & 0o777, 0o700);
        for (path, reason) in [
            (outside.join("1.out"), "not inside"),
            (root.join("../outside/1.out"), "`..`"),
            (root.join("link/1.out"), "symbolic link"),
            (root.join("x.log"), "symbolic link"),
            (root.join("job.sh"), "must end with"),
            (PathBuf::from("relative.out"), "not inside"),
        ] {
            let error = open(&path).unwrap_err().to_string();
            assert!(error.contains(reason), "{}: {error}", path.display());
        }
        assert_eq!(outside.read_dir().unwrap().count(), 0);
        assert!(boundary.open_folder(&root.join("logs")).is_ok());
        assert!(boundary.open_folder(&outside).is_err() && boundary.open_folder(&root.join("link")).is_err());
    }

    #[test]
    fn a_file_of_another_user_is_not_written_to() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("1.out");
        std::fs::write(&path, "theirs").unwrap();
        if std::os::unix::fs::chown(&path, Some(61_234), None).is_err() {
            return eprintln!("SKIPPED: only root can give a file to another user");
        }
        let error = boundary(root.path()).open_output(&path, ExistingContent::Truncate).unwrap_err();
        assert!(error.to_string().contains("belongs to another user"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "theirs");
    }

    #[test]
    fn a_pipe_in_the_place_of_output_does_not_block_the_worker() {
        let root = tempfile::tempdir().unwrap();
        let pipe = root.path().join("1.out");
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(boundary(root.path()).open_output(&pipe, ExistingContent::Truncate).is_err());
    }

    #[test]
    fn variables_that_run_code_cannot_be_allowed() {
        for name in ["BASH_ENV", "BASH_FUNC_ls%%", "BASHOPTS", "ENV", "LD_PRELOAD", "PATH", "SHELLOPTS"] {
            let refused = Boundary::new(&[], &[name.to_owned()]);
            assert!(matches!(refused, Err(DispatchWorkerError::ForbiddenVariable(_))), "{name}");
        }
        let root = tempfile::tempdir().unwrap();
        let boundary = boundary(root.path());
        let set = |name: &str| boundary.check_env(&BTreeMap::from([(name.to_owned(), "1".to_owned())]));
        assert!(set("SEED").is_ok() && set("BASH_ENV").is_err() && set("OTHER").is_err());
    }

    #[test]
    fn a_root_that_other_users_can_write_to_is_refused() {
        let root = tempfile::tempdir().unwrap();
        std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let refused = Boundary::new(&[root.path().to_path_buf()], &[]).unwrap_err();
        assert!(format!("{refused}").contains("root"), "{refused}");
    }
}
