"""The checker itself: it must find what is wrong with a worker."""

import subprocess
import sys
import unittest
from pathlib import Path
from typing import Tuple

ROOT = Path(__file__).resolve().parent.parent

# A worker by hand, with a fault where {fault} names it.
_WORKER = r"""
import json, select, signal, sys, time
fault = {fault!r}
signal.signal(signal.SIGINT, signal.SIG_IGN)
def say(flush=True, **message):
    held.append(json.dumps(message) + "\n")
    if flush or not select.select([stdin], [], [], 0)[0]:
        sys.stdout.write("".join(held))
        sys.stdout.flush()
        held.clear()
held, stdin = [], open(0, "rb", buffering=0)
hello = json.loads(stdin.readline())
names = ["noop", "echo", "double", "slow"]
say(type="ready", version=2 if fault == "version" else 1, pid=0 if fault == "pid" else __import__("os").getpid(),
    encoding="json", operations=[{{"name": name}} for name in names])
for line in iter(stdin.readline, b""):
    if not line.endswith(b"\n"):
        break
    message = json.loads(line)
    id, type = message.get("id"), message["type"]
    if type == "stop":
        if fault == "stop":
            time.sleep(1000)
        sys.exit(3 if fault == "code" else 0)
    if type == "ping":
        say(type="pong", id=id + (fault == "ping"))
    if type not in ("call", "ping", "cancel") and fault == "unheard":
        raise SystemExit("never heard of it")
    if type != "call":
        continue
    operation, given = message["operation"], message.get("arguments")
    if operation == "noop":
        say(flush=fault != "held", type="result", id=id)
    elif operation == "echo" and "arguments_base64" in message:
        say(type="result", id=id, value_base64=message["arguments_base64"])
    elif operation == "echo":
        if fault == "echo" and given == {{}}:
            given = []
        say(flush=fault != "held", type="result", id=id, value=given)
        if fault == "twice":
            say(type="result", id=id, value=given)
    elif operation == "double":
        if isinstance(given, int):
            say(type="result", id=id, value=given * 2)
        else:
            say(type="error", id=id, kind="bad_arguments", message="no")
    elif operation == "slow":
        for step in range(given["steps"]):
            time.sleep(given["ms"] / 1000)
            if message.get("progress") or fault == "progress":
                say(type="progress", id=id, value=step)
        say(type="result", id=id, value="done")
    elif fault != "unknown":
        say(type="error", id=id, kind="unknown_operation", message="no")
if fault == "end":
    sys.exit(1)
"""


def check(fault: str, only: str = "") -> Tuple[int, str]:
    command = [sys.executable, "-m", "longshore.check", "--patience", "3", "--only", only, "--"]
    worker = [sys.executable, "-c", _WORKER.format(fault=fault)]
    done = subprocess.run(command + worker, cwd=ROOT, stdout=subprocess.PIPE, universal_newlines=True)
    return done.returncode, done.stdout


class Checking(unittest.TestCase):
    def test_a_good_worker_is_found_good(self) -> None:
        code, said = check("")
        self.assertEqual((code, "FAIL" in said), (0, False), said)

    def test_each_fault_is_found(self) -> None:
        for fault, sentence in [
            ("version", "says `ready`"), ("pid", "says `ready`"), ("echo", "odd JSON"),
            ("twice", "odd JSON"), ("held", "holds no answer back"), ("progress", "tells progress"),
            ("ping", "answers a ping"), ("unheard", "never heard of"), ("unknown", "does not know"),
            ("stop", "on `stop`"), ("code", "on `stop`"), ("end", "when input ends"),
        ]:  # fmt: skip
            with self.subTest(fault=fault):
                code, said = check(fault, sentence)
                failed = [line for line in said.splitlines() if "FAIL" in line]
                self.assertEqual(code, 1, said)
                self.assertTrue(any(sentence in line for line in failed), said)


if __name__ == "__main__":
    unittest.main()
