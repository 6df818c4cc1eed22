"""Acts as the pool for one worker: starts it, sends, reads its messages, ends it."""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import socket
import struct
import subprocess
import tempfile
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

_HEADER = struct.Struct("<IBBHIQ")
_FROM_POOL = {"call": 1, "cancel": 2, "ping": 3, "stop": 4, "unheard_of": 99}
_FROM_WORKER = {129: "result", 130: "error", 131: "progress", 132: "pong", 133: "retire"}


class Fault(Exception):
    """The worker violated the protocol."""


class Silence(Fault):
    """A message did not arrive in time."""


class Worker:
    """A worker process and its messages."""

    def __init__(
        self,
        command: Sequence[str],
        encodings: Sequence[str] = ("json",),
        patience: float = 10.0,
        max_frame: int = 64 << 20,
        descriptor: bool = False,
        version: int = 1,
        environment: Optional[Dict[str, str]] = None,
    ) -> None:
        self.patience = patience
        self.binary = False
        self.stray: List[bytes] = []
        self.ready: Dict[str, Any] = {}
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._messages: List[Dict[str, Any]] = []
        self._id = 0
        self._corked = False
        self._errors = tempfile.TemporaryFile()
        self._start(command, descriptor, environment or {})
        hello = {"type": "hello", "version": version, "pool": "check", "worker": 1}
        self.say_line({**hello, "encodings": list(encodings), "max_frame": max_frame})

    def _start(self, command: Sequence[str], descriptor: bool, more: Dict[str, str]) -> None:
        variables = {**os.environ, "LONGSHORE_WORKER": "1", "LONGSHORE_WORKER_POOL": "check", **more}
        variables["LONGSHORE_WORKER_ID"] = "1"
        theirs: List[int] = []
        if descriptor:
            ours, other = socket.socketpair()
            self._reading = self._writing = ours.detach()
            theirs = [other.detach()]
            variables["LONGSHORE_WORKER_FD"] = str(theirs[0])
            pipes = (subprocess.DEVNULL, subprocess.DEVNULL)
        else:
            pipes = (subprocess.PIPE, subprocess.PIPE)
        self.process = subprocess.Popen(
            command, stdin=pipes[0], stdout=pipes[1], stderr=self._errors, bufsize=0,
            env=variables, pass_fds=theirs, start_new_session=True,
        )  # fmt: skip
        if descriptor:
            os.close(theirs[0])
        else:
            assert self.process.stdin is not None and self.process.stdout is not None
            self._writing = os.dup(self.process.stdin.fileno())
            self._reading = os.dup(self.process.stdout.fileno())
            self.process.stdin.close()
            self.process.stdout.close()
        os.set_blocking(self._writing, False)
        os.set_blocking(self._reading, False)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Ends it and its group, whatever it does."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self._close()
        self._errors.close()

    def last_words(self) -> str:
        """The end of its standard error."""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")[-2000:].strip()

    # Sending

    def say_line(self, message: Dict[str, Any]) -> None:
        """Sends a JSON line."""
        self._write(json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")

    def call(self, operation: str, arguments: Any = None, **more: Any) -> int:
        """Sends a call without waiting; bytes go as bytes."""
        self._id += 1
        self.say("call", self._id, operation, arguments, **more)
        return self._id

    def calls(self, *calls: Tuple[str, Any]) -> List[int]:
        """Sends several calls in one write: the worker has all of them when it has the first."""
        self._corked = True
        ids = [self.call(operation, arguments) for operation, arguments in calls]
        self._corked = False
        self._pump(0)
        return ids

    def say(
        self,
        type: str,
        id: int = 0,
        operation: str = "",
        arguments: Any = None,
        progress: bool = False,
        timeout_ms: int = 60_000,
    ) -> None:
        """Sends a message in the encoding that the worker chose."""
        if self.binary:
            is_call, name = type == "call", operation.encode()
            raw = isinstance(arguments, bytes)
            body = arguments if raw else json.dumps(arguments, ensure_ascii=False).encode()
            body = body if is_call else b""
            limit = (timeout_ms | progress << 31) if is_call else 0
            length = 16 + len(name) + len(body)
            header = _HEADER.pack(length, _FROM_POOL[type], raw, len(name), limit, id)
            self._write(header + name + body)
            return
        message: Dict[str, Any] = {"type": type, "id": id, "unheard_of": [1]}
        if type == "call":
            message.update(operation=operation, timeout_ms=timeout_ms)
            if progress:
                message["progress"] = True
            if isinstance(arguments, bytes):
                message["arguments_base64"] = base64.b64encode(arguments).decode()
            else:
                message["arguments"] = arguments
        self.say_line(message)

    def say_half(self) -> None:
        """Sends the beginning of a call, and nothing after it."""
        whole = _HEADER.pack(5000, 1, 0, 4, 0, 1) if self.binary else b'{"type":"call","id'
        self._write(whole)

    def end_input(self) -> None:
        """Closes the worker's input, as if the pool were gone."""
        self._drain(lambda: not self._outgoing)
        if self._writing == self._reading:
            socket.socket(fileno=os.dup(self._writing)).shutdown(socket.SHUT_WR)
        else:
            os.close(self._writing)
        self._writing = -1

    def _write(self, data: bytes) -> None:
        self._outgoing += data
        if not self._corked:
            self._pump(0)

    # Receiving

    def hear(self, patience: Optional[float] = None) -> Dict[str, Any]:
        """The next message."""
        if not self._drain(lambda: bool(self._messages), patience):
            raise Silence(f"said nothing for {patience or self.patience:g} s")
        return self._messages.pop(0)

    def answer(self, id: int, patience: Optional[float] = None) -> Dict[str, Any]:
        """The answer to a call, with earlier messages under ``progress``."""
        progress: List[Any] = []
        end = time.monotonic() + (patience or self.patience)
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise Silence(f"did not answer call {id} within {patience or self.patience:g} s")
            message = self.hear(left)
            if message.get("id") != id:
                raise Fault(f"spoke of id {message.get('id')} when {id} was next: {message}")
            if message["type"] != "progress":
                return {**message, "progress": progress}
            progress.append(message.get("value"))

    def result(self, id: int) -> Any:
        """The result of a call that must have one."""
        answer = self.answer(id)
        if answer["type"] != "result":
            raise Fault(f"answered a call with {answer}")
        return answer["value"]

    def wait_ready(self) -> "Worker":
        """Reads its `ready`, after which it may send frames."""
        ready = self.hear()
        if ready.get("type") != "ready":
            raise Fault(f"said {ready} where `ready` was due")
        self.ready = ready
        self.binary = ready.get("encoding") == "binary"
        self._take_all()
        return self

    def wait_end(self) -> int:
        """Its exit code, once it ends by itself."""
        end = time.monotonic() + self.patience
        while self.process.poll() is None:
            if time.monotonic() > end:
                raise Fault(f"was still there {self.patience:g} s later")
            self._pump(0.02)
        return self.process.returncode

    def unheard(self) -> List[Dict[str, Any]]:
        """Unexpected messages, up to the end of its output."""
        self._drain(lambda: self._reading < 0)
        return self._messages

    def _drain(self, done: Any, patience: Optional[float] = None) -> bool:
        end = time.monotonic() + (patience or self.patience)
        while not done():
            left = end - time.monotonic()
            if left <= 0:
                return False
            if self._reading < 0:
                code = self.process.wait(self.patience)
                raise Fault(f"ended with exit code {code}; its last words: {self.last_words()!r}")
            self._pump(left)
        return True

    def _pump(self, limit: float) -> None:
        """Moves bytes in both directions, so that neither side waits for the other."""
        reading = [self._reading] if self._reading >= 0 else []
        writing = [self._writing] if self._outgoing and self._writing >= 0 else []
        if not reading and not writing:
            time.sleep(min(limit, 0.02))
            return
        can_read, can_write, _ = select.select(reading, writing, [], limit)
        if can_write:
            try:
                del self._outgoing[: os.write(self._writing, self._outgoing[: 1 << 16])]
            except OSError:
                self._outgoing.clear()
        if can_read:
            self._read()

    def _read(self) -> None:
        try:
            data = os.read(self._reading, 1 << 20)
        except ConnectionError:
            data = b""
        if not data:
            self._close()
            return
        self._incoming += data
        self._take_all()

    def _take_all(self) -> None:
        while self._take_frame() if self.binary else self._take_line():
            pass

    def _close(self) -> None:
        for descriptor in {self._reading, self._writing}:
            if descriptor >= 0:
                os.close(descriptor)
        self._reading = self._writing = -1

    def _take_line(self) -> bool:
        line, newline, rest = self._incoming.partition(b"\n")
        if not newline:
            return False
        self._incoming = rest
        try:
            message = json.loads(bytes(line))
        except ValueError:
            message = None
        if not isinstance(message, dict):
            self.stray.append(bytes(line))
        else:
            self._messages.append(_of_line(message))
        # After `ready` the encoding may change: later messages must not be read in the old one.
        return not (isinstance(message, dict) and message.get("type") == "ready")

    def _take_frame(self) -> bool:
        have = len(self._incoming)
        if have < 20:
            return False
        length, type, form, name, _, id = _HEADER.unpack_from(self._incoming)
        if type not in _FROM_WORKER or length < 16 or form > 1:
            raise Fault(f"sent something that is no frame: {bytes(self._incoming[:40])!r}")
        if have < length + 4:
            return False
        body = bytes(self._incoming[20 + name : length + 4])
        del self._incoming[: length + 4]
        self._messages.append(_of_frame(_FROM_WORKER[type], id, form == 1, body))
        return True


def _of_line(message: Dict[str, Any]) -> Dict[str, Any]:
    if message.get("type") == "result":
        if "value_base64" in message:
            message["value"] = base64.b64decode(message["value_base64"])
        message.setdefault("value", None)
    return message


def _of_frame(type: str, id: int, raw: bool, body: bytes) -> Dict[str, Any]:
    try:
        value = body if raw else json.loads(body) if body else None
    except ValueError as error:
        raise Fault(f"sent a {type} whose JSON cannot be read: {error}") from None
    if type == "error":
        if not isinstance(value, dict):
            raise Fault(f"sent an error whose body is no object: {body!r}")
        return {"type": type, "id": id, **value}
    return {"type": type, "id": id, "value": value}
