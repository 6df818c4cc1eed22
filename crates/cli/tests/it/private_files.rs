//! Other users of the machine can neither read what the binary writes nor put anything in its way.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::{CliOutput, TIMEOUT, TestDir, eventually, stretch};

/// A user that is neither root nor the one that runs the tests.
const STRANGER: u32 = 61_234;

const START: [&str; 7] = ["dispatch", "start", "--nthr", "1", "--dir", "pool", "--wait-limit=20s"];

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Gives a file, or a folder with everything in it, to another user. Returns false if this user may
/// not.
fn give_away(path: &Path) -> bool {
    if path.is_dir() {
        for entry in path.read_dir().unwrap() {
            give_away(&entry.unwrap().path());
        }
    }
    let given = chown(path, Some(STRANGER), Some(STRANGER)).is_ok();
    if !given {
        eprintln!("SKIPPED: only root can give {} to another user", path.display());
    }
    given
}

/// The same command under another umask.
fn with_umask(umask: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("umask {umask}; exec \"$0\" \"$@\"")).arg(command.get_program());
    shell.args(command.get_args()).current_dir(command.get_current_dir().unwrap());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

/// Everything below a folder that group or others can access.
fn accessible(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        if metadata.mode() & 0o077 != 0 {
            found.push(format!("{} {:04o}", path.display(), metadata.mode() & 0o7777));
        }
        // A private folder hides what is in it.
        if metadata.is_dir() && metadata.mode() & 0o077 != 0 {
            found.extend(accessible(&path));
        }
    }
    found
}

/// The attack: another user makes the victim's state folder first, with a unit that runs a script.
#[test]
fn a_state_folder_that_another_user_made_runs_nothing() {
    let dir = TestDir::new();
    let evil = dir.write("evil.sh", "touch stolen");
    let state = dir.path("state");
    fs::create_dir(&state).unwrap();
    let payload = json!({ "path": evil, "dir": dir.path("") }).to_string();
    let store = format!("sqlite:{}", state.join("units.db").display());
    dir.run(&["--store", &store, "submit", "script", &payload]).ok();
    let start = || dir.run(&[&START[..], &["--state", "state"]].concat());
    // `mkdir` left it open to others.
    set_mode(&state, 0o755);
    start().ends(1).says("is accessible to other users: its mode is 0755").says("hint: chmod 700");
    set_mode(&state, 0o700);
    set_mode(&state.join("units.db"), 0o644);
    start().ends(1).says("units.db is accessible to other users").says("hint: chmod 600");
    set_mode(&state.join("units.db"), 0o600);
    fs::rename(&state, dir.path("real")).unwrap();
    std::os::unix::fs::symlink(dir.path("real"), &state).unwrap();
    start().ends(1).says("is a symbolic link");
    fs::remove_file(&state).unwrap();
    fs::rename(dir.path("real"), &state).unwrap();
    if !give_away(&state.join("units.db")) {
        return;
    }
    start().ends(1).says(&format!("units.db belongs to another user (uid {STRANGER})"));
    give_away(&state);
    start().ends(1).says(&format!("state belongs to another user (uid {STRANGER})"));
    // A world-writable folder of the other user, in which this user makes the state folder.
    set_mode(&state, 0o777);
    let inner = dir.run(&[&START[..], &["--state", "state/inner"]].concat()).ends(1);
    inner.says("belongs to another user").says("hint:");
    assert!(!dir.path("stolen").exists());
}

/// The attack: another user places a store, or the log of one, where the victim starts a worker.
#[test]
fn a_store_that_another_user_placed_or_can_change_runs_nothing() {
    let dir = TestDir::new();
    dir.submit_script("touch stolen", &[]);
    let work = ["worker", "--slots", "1", "--until-idle"];
    let named = [&["--store", "sqlite:longshore.db"], &work[..]].concat();
    for (path, mode) in [("longshore.db", 0o666), (".", 0o777), (".", 0o1777)] {
        let before = dir.path(path).metadata().unwrap().mode() & 0o777;
        set_mode(&dir.path(path), mode);
        for args in [&work[..], &named] {
            dir.run(args).ends(1).says("can be changed by other users").says("hint:");
        }
        dir.run(&["doctor"]).ends(1);
        set_mode(&dir.path(path), before);
    }
    let log = dir.write("longshore.db-wal", "");
    set_mode(&log, 0o600);
    if give_away(&log) {
        dir.run(&work).ends(1).says("longshore.db-wal belongs to another user").says("`--store sqlite:");
        fs::remove_file(&log).unwrap();
        give_away(&dir.path("longshore.db"));
        dir.run(&work).ends(1).says("longshore.db belongs to another user");
        assert!(dir.run(&["doctor"]).ends(1).out.contains("belongs to another user"));
    }
    assert!(!dir.path("stolen").exists());
    // A store that the user names may belong to another member of a group.
    dir.run(&named).ok();
    assert!(dir.path("stolen").exists());
}

#[test]
fn everything_with_payloads_is_private_under_any_umask() {
    for umask in ["022", "000"] {
        let dir = TestDir::new();
        let run = |args: &[&str]| CliOutput::of(with_umask(umask, &dir.command(args)).spawn().unwrap());
        run(&["submit", "exec", r#"{"argv":["sleep","60"]}"#]).ok();
        let mut worker = with_umask(umask, &dir.command(&["worker", "--slots", "1", "--log-dir", "logs"]));
        let mut worker = crate::support::ChildGuard(worker.spawn().unwrap());
        eventually(stretch(TIMEOUT), || dir.path("longshore.db-shm").exists().then_some(()));
        for name in ["longshore.db", "longshore.db-wal", "longshore.db-shm"] {
            assert_eq!(dir.path(name).metadata().unwrap().mode() & 0o777, 0o600, "{name} with {umask}");
        }
        run(&START).ok();
        dir.write("job.sh", "echo hello");
        run(&["submit", "--dir", "pool", "--script", "job.sh", "--wait"]).ok();
        run(&["mail", "stats"]);
        fs::remove_file(dir.path("job.sh")).unwrap();
        assert_eq!(accessible(&dir.path("")), Vec::<String>::new(), "with {umask}");
        run(&["dispatch", "stop", "--dir", "pool"]).ok();
        let _ = worker.0.kill();
        let _ = worker.0.wait();
    }
}

#[test]
fn a_configuration_that_another_user_wrote_or_can_write_is_not_obeyed() {
    let dir = TestDir::new();
    let config = dir.write("longshore.toml", "[worker]\nslots = 2\n");
    set_mode(&config, 0o666);
    dir.run(&["queue", "list"]).ends(1).says("can be changed by other users").says("hint: chmod go-w");
    dir.write("longshore.toml", "[alerts]\nwebhook = 'https://example.com/SECRET'\n");
    set_mode(&config, 0o644);
    let run = dir.run(&["queue", "list"]).ends(1);
    let run = run.says("holds a secret and is readable by other users").says("hint: chmod 600");
    assert!(!run.err.contains("SECRET"));
    set_mode(&config, 0o600);
    dir.run(&["queue", "list"]).ok();
    if !give_away(&config) {
        return;
    }
    dir.run(&["queue", "list"]).ends(1).says("belongs to another user").says("--config longshore.toml");
    dir.run(&["--config", "longshore.toml", "queue", "list"]).ok();
}

#[test]
fn a_secret_or_a_log_folder_that_other_users_can_read_is_refused() {
    let dir = TestDir::new();
    let refused = |args: &[&str]| {
        dir.run(args).ends(1).says("is accessible to other users").says("hint: chmod");
    };
    let (cert, key) = crate::serve::self_signed_certificate(&dir, "DNS:localhost");
    set_mode(Path::new(&key), 0o644);
    refused(&["serve", "--listen", "127.0.0.1:0", "--tls-cert", &cert, "--tls-key", &key]);
    dir.write("word", "secret");
    set_mode(&dir.path("word"), 0o644);
    let smtp = "[mail.smtp]\nserver = '127.0.0.1:1'\nuser = 'me'\npassword_file = 'word'\n";
    dir.write("longshore.toml", smtp);
    refused(&["mail", "send"]);
    fs::create_dir(dir.path("logs")).unwrap();
    for mode in [0o755, 0o711] {
        set_mode(&dir.path("logs"), mode);
        refused(&["--log-dir", "logs", "queue", "list"]);
    }
    set_mode(&dir.path("logs"), 0o1777);
    refused(&["--log-dir", "logs", "queue", "list"]);
    set_mode(&dir.path("logs"), 0o700);
    dir.run(&["--log-dir", "logs", "queue", "list"]).ok();
    set_mode(&dir.write("longshore.toml", "[workers.py.env]\nOPENAI_API_KEY = 'x'\n"), 0o644);
    dir.run(&["queue", "list"]).ends(1).says("holds a secret and is readable by other users");
}

#[test]
fn doctor_names_untrusted_folders_with_the_reason_and_the_command() {
    let dir = TestDir::new();
    dir.write("longshore.toml", "[dispatch]\ndir = 'pool'\n[mail]\nspool = 'spool'\n");
    for folder in ["pool/state", "spool/keys"] {
        fs::create_dir_all(dir.path(folder)).unwrap();
        set_mode(&dir.path(folder), 0o755);
    }
    dir.write("pool/access.json", "{}");
    set_mode(&dir.path("pool/access.json"), 0o644);
    let shown = dir.run(&["doctor"]).ends(1).out;
    for (area, mend) in
        [("dispatch state", "chmod 700"), ("dispatch access", "chmod 600"), ("mail spool", "chmod 700")]
    {
        let line = shown.lines().position(|line| line.contains(area));
        let line = line.unwrap_or_else(|| panic!("{area}: {shown}"));
        let (finding, mended) = (shown.lines().nth(line).unwrap(), shown.lines().nth(line + 1).unwrap());
        assert!(finding.starts_with("wrong") && finding.contains("accessible to other users"), "{shown}");
        assert!(mended.contains(mend), "{shown}");
    }
}
