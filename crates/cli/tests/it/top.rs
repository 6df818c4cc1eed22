//! `top` where nobody watches, and in a real terminal.

use std::process::{Command, Stdio};

use crate::support::{Place, Run};

/// A queue, a batch, a pool.
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

/// Runs `top` in a terminal of 80 by 24, types these keys, and returns what was drawn.
fn typed(place: &Place, keys: &str) -> Run {
    // Each key is typed once the answer to the one before it was drawn.
    let script = "import os, pty, struct, fcntl, termios, sys\n\
                  pid, fd = pty.fork()\n\
                  if pid == 0: os.execv(sys.argv[1], [sys.argv[1], 'top', '--every', '100ms'])\n\
                  fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))\n\
                  out = b''\n\
                  def frame():\n    \
                  global out\n    \
                  seen = out.count(b'q quits')\n    \
                  while out.count(b'q quits') < seen + 2: out += os.read(fd, 65536)\n\
                  for key in sys.argv[2].split(','):\n    \
                  frame()\n    \
                  os.write(fd, key.encode().decode('unicode_escape').encode())\n\
                  try:\n    \
                  while True:\n        \
                  more = os.read(fd, 65536)\n        \
                  if not more: break\n        \
                  out += more\n\
                  except OSError: pass\n\
                  sys.stdout.buffer.write(out)\n\
                  sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n";
    let mut python = Command::new("python3");
    python.args(["-c", script, env!("CARGO_BIN_EXE_longshore"), keys]);
    python.current_dir(place.path("")).stdin(Stdio::null());
    Run::of(python.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

#[test]
fn keys_choose_and_pause_and_leave_the_terminal_as_it_was() {
    let place = place();
    let run = typed(&place, "p,q").ok();
    assert_eq!(place.queue()["paused"], true);
    assert!(run.out.contains("queue default is paused"), "{}", run.out);
    assert!(run.out.ends_with("\u{1b}[?1049l"), "the screen from before: {:?}", run.out);
    typed(&place, "p,q").ok();
    assert_eq!(place.queue()["paused"], false);
    typed(&place, "\\t,\\x1b[B,p,q").ok();
    assert_eq!(place.batch("naps")["status"], "paused");
}
