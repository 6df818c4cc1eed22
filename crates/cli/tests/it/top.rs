//! `top` without and with a terminal.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use crate::support::{CliOutput, TIMEOUT, TestDir, eventually, signal};

/// A test directory with a queue, a batch and a pool.
fn dir_with_work() -> TestDir {
    let dir = TestDir::new();
    let lines = "{\"argv\":[\"true\"]}\n".repeat(4);
    dir.run_with(&["submit", "exec", "--lines", "-", "--batch", "naps"], lines).ok();
    dir.run(&["pool", "init", "licence", "--max", "2"]).ok();
    dir
}

#[test]
fn one_frame_is_printed_where_nobody_watches() {
    let dir = dir_with_work();
    let text = dir.run(&["top"]).ok().out;
    for words in ["ready 4", "default", "naps", "queued", "no workers", "licence", "0/2"] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
    let figures = dir.run(&["top", "--json"]).ok().json();
    assert_eq!(figures["queues"][0]["counts"]["ready"], 4);
    assert_eq!(figures["queues"][0]["trend"], "steady");
    assert_eq!(figures["batches"][0]["id"], "naps");
    assert_eq!(figures["pools"][0]["max"], 2);
}

/// `top` in a terminal of 80 by 24.
struct TerminalSession(Option<Child>);

impl Drop for TerminalSession {
    /// A failed test leaves no process behind.
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a program in a pseudo-terminal; types stdin's lines of hex, and prints the output at the end.
const TERMINAL_PROGRAM: &str = "import os, pty, struct, fcntl, termios, sys, threading
pid, fd = pty.fork()
if pid == 0: os.execv(sys.argv[1], sys.argv[1:])
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))
def type():
    for line in sys.stdin:
        try: os.write(fd, bytes.fromhex(line))
        except OSError: pass
threading.Thread(target=type, daemon=True).start()
out = b''
try:
    while True:
        more = os.read(fd, 65536)
        if not more: break
        out += more
except OSError: pass
sys.stdout.buffer.write(out)
sys.stdout.flush()
os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 255)
";

impl TerminalSession {
    fn start(dir: &TestDir) -> Self {
        let mut python = Command::new("python3");
        python.args(["-c", TERMINAL_PROGRAM, env!("CARGO_BIN_EXE_longshore"), "top", "--every", "100ms"]);
        python.current_dir(dir.path("")).stdin(Stdio::piped());
        Self(Some(python.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    fn type_keys(&mut self, keys: &str) {
        let hex: String = keys.bytes().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.0.as_mut().unwrap().stdin.as_mut().unwrap(), "{hex}").unwrap();
    }

    /// Waits for the end and returns everything that was drawn.
    fn wait(mut self) -> CliOutput {
        let mut child = self.0.take().unwrap();
        let _stdin = child.stdin.take();
        CliOutput::of(child)
    }
}

#[test]
fn keys_choose_and_pause_and_leave_the_terminal_as_it_was() {
    let dir = dir_with_work();
    let mut top = TerminalSession::start(&dir);
    let paused = || dir.queue()["paused"] == true;
    top.type_keys("p");
    eventually(TIMEOUT, || paused().then_some(()));
    top.type_keys("p");
    eventually(TIMEOUT, || (!paused()).then_some(()));
    // To the list of batches, with one arrow key too many.
    top.type_keys("\t\u{1b}[Bp");
    eventually(TIMEOUT, || (dir.batch("naps")["status"] == "paused").then_some(()));
    // Back by another key, and help on top.
    top.type_keys("\u{1b}[D?p");
    eventually(TIMEOUT, || paused().then_some(()));
    top.type_keys("q");
    let run = top.wait().ok();
    let (shown, after) =
        run.out.rsplit_once("\u{1b}[?1049l").expect("the escape sequence that restores the screen");
    assert!(!after.contains("ready"), "nothing is drawn on it: {after:?}");
    assert!(shown.contains("shift-tab"), "help: {shown:?}");
}

#[test]
fn a_signal_or_ctrl_c_leaves_the_terminal_as_it_was() {
    let dir = dir_with_work();
    let mut top = TerminalSession::start(&dir);
    top.type_keys("p");
    eventually(TIMEOUT, || (dir.queue()["paused"] == true).then_some(()));
    top.type_keys("\u{3}");
    assert!(top.wait().ok().out.contains("\u{1b}[?1049l"));
    let mut top = TerminalSession::start(&dir);
    top.type_keys("p");
    eventually(TIMEOUT, || (dir.queue()["paused"] == false).then_some(()));
    let python = top.0.as_ref().unwrap().id();
    let children = format!("/proc/{python}/task/{python}/children");
    let child = std::fs::read_to_string(children).unwrap();
    assert!(signal(child.trim().parse().unwrap(), "TERM"));
    assert!(top.wait().out.contains("\u{1b}[?1049l"));
}
