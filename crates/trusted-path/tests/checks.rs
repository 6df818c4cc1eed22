//! What is private is accepted, and everything that another user could read or replace is rejected
//! with the reason.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests may give up loudly")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use longshore_trusted_path::{
    PathError, Symlinks, check_parents, check_private_dir, check_private_tree, create_private_dir,
    open_private, open_shared, write_private,
};

/// A user that is neither root nor the one that runs the tests.
const STRANGER: u32 = 61_234;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Gives the file to another user. Returns false if this user may not, and says so.
fn give_away(path: &Path) -> bool {
    let given = chown(path, Some(STRANGER), None).is_ok();
    if !given {
        eprintln!("SKIPPED: only root can give {} to another user", path.display());
    }
    given
}

#[test]
fn what_is_created_is_private_and_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("a/b");
    create_private_dir(&state).unwrap();
    for folder in ["a", "a/b"] {
        assert_eq!(fs::metadata(dir.path().join(folder)).unwrap().mode() & 0o777, 0o700);
    }
    let file = state.join("file");
    write_private(&file, b"text").unwrap();
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    open_private(&file, Symlinks::Reject).unwrap();
    create_private_dir(&state).unwrap();
    check_private_tree(&dir.path().join("a")).unwrap();
}

#[test]
fn permissions_of_others_on_the_folder_or_a_file_in_it_are_rejected_with_the_mode_and_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let (state, file) = (dir.path().join("state"), dir.path().join("state/units.db"));
    create_private_dir(&state).unwrap();
    write_private(&file, b"").unwrap();
    for mode in [0o701, 0o710, 0o755, 0o777] {
        set_mode(&state, mode);
        let error = create_private_dir(&state).unwrap_err();
        assert!(error.to_string().contains(&format!("{mode:04o}")), "{error}");
        assert_eq!(error.hint().unwrap(), format!("chmod 700 {}", state.display()));
    }
    set_mode(&state, 0o700);
    set_mode(&file, 0o640);
    for error in [check_private_tree(&state).unwrap_err(), open_private(&file, Symlinks::Reject).unwrap_err()]
    {
        assert_eq!(error.hint().unwrap(), format!("chmod 600 {}", file.display()));
    }
}

#[test]
fn another_users_folder_file_or_parent_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (state, file) = (dir.path().join("state"), dir.path().join("state/units.db"));
    create_private_dir(&state).unwrap();
    write_private(&file, b"").unwrap();
    if !give_away(&file) {
        return;
    }
    let is_foreign = |error| matches!(error, PathError::WrongOwner { owner: STRANGER, .. });
    assert!(is_foreign(check_private_tree(&state).unwrap_err()));
    assert!(is_foreign(open_private(&file, Symlinks::Reject).unwrap_err()));
    assert!(is_foreign(open_shared(&file).unwrap_err()));
    give_away(&state);
    assert!(is_foreign(create_private_dir(&state).unwrap_err()));
    assert!(is_foreign(create_private_dir(&state.join("inner")).unwrap_err()));
}

#[test]
fn a_parent_that_others_can_write_is_rejected_unless_it_is_sticky() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, state) = (dir.path().join("shared"), dir.path().join("shared/state"));
    create_private_dir(&state).unwrap();
    set_mode(&shared, 0o777);
    let error = check_private_dir(&state).unwrap_err();
    assert_eq!(error.hint().unwrap(), format!("chmod go-w {}", shared.display()));
    set_mode(&shared, 0o1777);
    check_private_dir(&state).unwrap();
}

#[test]
fn links_are_rejected_and_pipes_are_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let (state, link) = (dir.path().join("state"), dir.path().join("link"));
    create_private_dir(&state).unwrap();
    symlink(&state, &link).unwrap();
    assert!(matches!(create_private_dir(&link), Err(PathError::Symlink(_))));
    // A folder below a link of this user is the user's own affair.
    create_private_dir(&link.join("inner")).unwrap();
    let (file, to_file) = (state.join("file"), state.join("to_file"));
    write_private(&file, b"text").unwrap();
    symlink(&file, &to_file).unwrap();
    assert!(matches!(open_private(&to_file, Symlinks::Reject), Err(PathError::Symlink(_))));
    assert!(matches!(open_shared(&to_file), Err(PathError::Symlink(_))));
    open_private(&to_file, Symlinks::Follow).unwrap();
    assert!(matches!(check_private_tree(&state), Err(PathError::Symlink(_))));
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(matches!(open_private(&pipe, Symlinks::Reject), Err(PathError::WrongType { .. })));
    check_parents(&pipe).unwrap();
}

#[test]
fn a_missing_file_is_told_from_an_untrusted_one() {
    let dir = tempfile::tempdir().unwrap();
    let error = open_private(&dir.path().join("none"), Symlinks::Reject).unwrap_err();
    assert_eq!((error.io_kind(), error.hint()), (Some(std::io::ErrorKind::NotFound), None));
}
