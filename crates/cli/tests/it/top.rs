//! `top` without and with a terminal.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use crate::support::{Place, Run, SOON, eventually, signal};

/// A test directory with a queue, a batch and a pool.
fn place() -> Place {
    let place = Place::new();
    let lines = "{\"argv\":[\"true\"]}\n".repeat(4);
    place.run_with(&["submit", "exec", "--lines", "-", "--batch", "naps"], lines).ok();
    place.run(&["pool", "init", "licence", "--max", "2"]).ok();
    place
}

#[test]
fn one_frame_is_printed_where_nobody_watches() {
    let place = place();
    let text = place.run(&["top"]).ok().out;
    for words in ["ready 4", "default", "naps", "queued", "no workers", "licence", "0/2"] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
    let figures = place.run(&["top", "--json"]).ok().json();
    assert_eq!(figures["queues"][0]["counts"]["ready"], 4);
    assert_eq!(figures["queues"][0]["trend"], "steady");
    assert_eq!(figures["batches"][0]["id"], "naps");
    assert_eq!(figures["pools"][0]["max"], 2);
}

/// `top` in a terminal of 80 by 24.
struct Watched(Option<Child>);

impl Drop for Watched {
    /// A failed test leaves no process behind.
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a program in a pseudo-terminal; types stdin's lines of hex, and prints the output at the end.
const TERMINAL: &str = "import os, pty, struct, fcntl, termios, sys, threading
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

impl Watched {
    fn start(place: &Place) -> Self {
        let mut python = Command::new("python3");
        python.args(["-c", TERMINAL, env!("CARGO_BIN_EXE_longshore"), "top", "--every", "100ms"]);
        python.current_dir(place.path("")).stdin(Stdio::piped());
        Self(Some(python.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    fn types(&mut self, keys: &str) {
        let hex: String = keys.bytes().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.0.as_mut().unwrap().stdin.as_mut().unwrap(), "{hex}").unwrap();
    }

    /// Waits for the end and returns everything that was drawn.
    fn ends(mut self) -> Run {
        let mut child = self.0.take().unwrap();
        let _stdin = child.stdin.take();
        Run::of(child)
    }
}

#[test]
fn keys_choose_and_pause_and_leave_the_terminal_as_it_was() {
    let place = place();
    let mut top = Watched::start(&place);
    let paused = || place.queue()["paused"] == true;
    top.types("p");
    eventually(SOON, || paused().then_some(()));
    top.types("p");
    eventually(SOON, || (!paused()).then_some(()));
    // To the list of batches, with one arrow key too many.
    top.types("\t\u{1b}[Bp");
    eventually(SOON, || (place.batch("naps")["status"] == "paused").then_some(()));
    // Back by another key, and help on top.
    top.types("\u{1b}[D?p");
    eventually(SOON, || paused().then_some(()));
    top.types("q");
    let run = top.ends().ok();
    let (shown, after) = run.out.rsplit_once("\u{1b}[?1049l").expect("the screen from before");
    assert!(!after.contains("ready"), "nothing is drawn on it: {after:?}");
    assert!(shown.contains("shift-tab"), "help: {shown:?}");
}

#[test]
fn a_signal_or_ctrl_c_leaves_the_terminal_as_it_was() {
    let place = place();
    let mut top = Watched::start(&place);
    top.types("p");
    eventually(SOON, || (place.queue()["paused"] == true).then_some(()));
    top.types("\u{3}");
    assert!(top.ends().ok().out.contains("\u{1b}[?1049l"));
    let mut top = Watched::start(&place);
    top.types("p");
    eventually(SOON, || (place.queue()["paused"] == false).then_some(()));
    let python = top.0.as_ref().unwrap().id();
    let children = format!("/proc/{python}/task/{python}/children");
    let child = std::fs::read_to_string(children).unwrap();
    assert!(signal(child.trim().parse().unwrap(), "TERM"));
    assert!(top.ends().out.contains("\u{1b}[?1049l"));
}
