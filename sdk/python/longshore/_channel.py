"""The two descriptors between a worker and its pool. Knows nothing of the messages."""

from __future__ import annotations

import os
import select
import sys
from typing import Sequence, Union

Buffer = Union[bytes, bytearray, memoryview]

_CHUNK = 64 * 1024


class PoolGone(BaseException):
    """The pool no longer reads. Not an `Exception`, so that no operation catches it by mistake."""


class Channel:
    """Raw reads and writes; a worker's fast path is one of each per call."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading = reading
        self.writing = writing
        self.kept = b""  # what was read with the line before it
        for descriptor in (reading, writing):
            os.set_blocking(descriptor, True)
            os.set_inheritable(descriptor, False)

    @classmethod
    def take(cls) -> "Channel":
        """The channel that the pool passed. From here on a stray ``print``, also of a C library or of
        a subprocess, goes to standard error, and only the SDK reads standard input.
        """
        number = os.environ.pop("LONGSHORE_WORKER_FD", None)
        if number is not None:
            return cls(int(number), int(number))
        channel = cls(os.dup(0), os.dup(1))
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        _unbuffer_stdout()
        return channel

    def read(self) -> bytes:
        """Returns buffered or new input; empty at the end of input."""
        if self.kept:
            data, self.kept = self.kept, b""
            return data
        try:
            return os.read(self.reading, _CHUNK)
        except ConnectionError:  # the peer of the socket died
            return b""

    def fill(self, buffer: bytearray, have: int) -> bool:
        """Reads until ``buffer`` is full, of which ``have`` bytes are there; false if input ends."""
        view = memoryview(buffer)
        while have < len(buffer):
            try:
                count = os.readv(self.reading, [view[have:]])
            except ConnectionError:
                count = 0
            if count == 0:
                return False
            have += count
        return True

    def something_came(self) -> bool:
        """Whether a read would return at once."""
        if self.kept:
            return True
        poll = select.poll()
        poll.register(self.reading, select.POLLIN)
        return bool(poll.poll(0))

    def write(self, data: Buffer) -> None:
        """Writes all of it."""
        count = self._write_some(data)
        if count < len(data):
            self._write_rest(data, count)

    def write_parts(self, parts: Sequence[Buffer]) -> None:
        """Writes all parts, without joining them first."""
        try:
            count = os.writev(self.writing, parts)
        except ConnectionError:
            raise PoolGone() from None
        for part in parts:
            if count < len(part):
                self._write_rest(part, count)
            count = max(0, count - len(part))

    def _write_rest(self, data: Buffer, at: int) -> None:
        view = memoryview(data)
        while at < len(data):
            at += self._write_some(view[at:])

    def _write_some(self, data: Buffer) -> int:
        try:
            return os.write(self.writing, data)
        except ConnectionError:  # BrokenPipeError is one
            raise PoolGone() from None


def _unbuffer_stdout() -> None:
    """Flushes prints to the log line by line, not when the worker ends."""
    try:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    except (AttributeError, ValueError):
        pass  # other code replaced it meanwhile: leave it
