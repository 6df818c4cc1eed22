//! Sources of master keys, and invalid ones.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use longshore_ai::{MasterKey, MasterSource, VaultError};
use longshore_trusted_path::PathError;
use tempfile::tempdir;

use crate::fake_keys::{master, write_file};

fn from_file(path: &Path) -> Result<MasterKey, VaultError> {
    MasterKey::load(&MasterSource::File(path.to_owned()))
}

fn from_text(text: &str) -> Result<MasterKey, VaultError> {
    let source = "env:MASTER".parse()?;
    MasterKey::load_in(&source, &|name| (name == "MASTER").then(|| text.to_owned()))
}

#[test]
fn the_same_bytes_are_the_same_key_wherever_they_come_from() {
    let folder = tempdir().unwrap();
    write_file(&folder.path().join("raw"), &[7; 32], 0o600);
    write_file(&folder.path().join("text"), "07".repeat(32).as_bytes(), 0o440);
    let id = from_file(&folder.path().join("raw")).unwrap().id().to_owned();
    assert_eq!(id.len(), 16, "eight bytes in hex");
    assert_eq!(from_text(&"07".repeat(32)).unwrap().id(), id);
    assert_eq!(from_text("BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=\n").unwrap().id(), id);
    let directory = folder.path().to_str().unwrap();
    for name in ["raw", "text"] {
        let source: MasterSource = format!("credential:{name}").parse().unwrap();
        let find = |name: &str| (name == "CREDENTIALS_DIRECTORY").then(|| directory.to_owned());
        assert_eq!(MasterKey::load_in(&source, &find).unwrap().id(), id, "{name}");
    }
    assert_ne!(master(8).id(), id);
}

#[test]
fn a_file_that_others_may_read_is_refused_and_a_symlink_does_not_hide_it() {
    let folder = tempdir().unwrap();
    let (path, link) = (folder.path().join("master"), folder.path().join("link"));
    symlink(&path, &link).unwrap();
    for mode in [0o640, 0o604, 0o620, 0o601, 0o660, 0o644, 0o777] {
        write_file(&path, &[7; 32], mode);
        for path in [&path, &link] {
            let error = from_file(path).unwrap_err();
            assert!(
                matches!(error, VaultError::Untrusted(PathError::Accessible { .. })),
                "{mode:o}: {error}"
            );
            assert_eq!(error.hint().unwrap(), format!("chmod 600 {}", path.display()));
        }
    }
    for mode in [0o600, 0o400] {
        write_file(&path, &[7; 32], mode);
        from_file(&path).unwrap();
        from_file(&link).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    }
}

#[test]
fn another_users_file_is_refused() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("master");
    write_file(&path, &[7; 32], 0o600);
    if std::os::unix::fs::chown(&path, Some(61_234), None).is_err() {
        return eprintln!("SKIPPED: only root can give a file to another user");
    }
    let error = from_file(&path).unwrap_err();
    assert!(matches!(error, VaultError::Untrusted(PathError::WrongOwner { owner: 61_234, .. })), "{error}");
}

#[test]
fn only_32_bytes_are_a_master_key() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("master");
    for length in [0, 31, 33, 64, 100_000] {
        write_file(&path, &vec![7; length], 0o600);
        let error = from_file(&path).unwrap_err();
        let expected = matches!(error, VaultError::BadMaster { .. } | VaultError::File { source: None, .. });
        assert!(expected, "{length}: {error}");
    }
    for text in ["", "07", "zz", &"0g".repeat(32), &"07".repeat(33), "BwcH", "é"] {
        let error = from_text(text).unwrap_err().to_string();
        let actual = "the master key in variable MASTER is neither 64 hex digits nor base64";
        assert_eq!(error, actual);
    }
    let folder_error = from_file(folder.path()).unwrap_err();
    assert!(matches!(folder_error, VaultError::Untrusted(PathError::WrongType { .. })), "{folder_error}");
    assert!(matches!(from_file(&folder.path().join("none")), Err(VaultError::File { .. })));
}

#[test]
fn a_new_key_is_private_and_never_takes_the_place_of_another() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("master");
    let made = MasterKey::generate(&path).unwrap();
    assert_eq!(from_file(&path).unwrap().id(), made.id());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    assert!(matches!(MasterKey::generate(&path), Err(VaultError::File { .. })));
    assert_eq!(from_file(&path).unwrap().id(), made.id(), "it is still there");
    let other = MasterKey::generate(&folder.path().join("other")).unwrap();
    assert_ne!(other.id(), made.id());
}

#[test]
fn credentials_lie_in_their_directory_and_nowhere_else() {
    for bad in ["credential:", "credential:../etc/passwd", "credential:/etc/passwd", "file:", ""] {
        assert!(bad.parse::<MasterSource>().is_err(), "{bad}");
    }
    let source = "credential:master".parse().unwrap();
    let error = MasterKey::load_in(&source, &|_| None).unwrap_err();
    assert!(error.to_string().contains("CREDENTIALS_DIRECTORY"), "{error}");
}
