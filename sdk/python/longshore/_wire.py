"""Shared by the two encodings of messages (`_lines`, `_frames`): an inbox of received messages, an
outbox for the next flush, and the encoding of values as JSON.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Union

from ._channel import Buffer, Channel
from ._errors import OperationError

CALL, CANCEL, PING, STOP = 1, 2, 3, 4
RESULT, ERROR, PROGRESS, PONG, RETIRE = 129, 130, 131, 132, 133
# Larger bodies are not copied, neither out of their frame nor behind their header.
LARGE = 32 * 1024
# Not part of the protocol: a call with arguments that could not be parsed; they hold the reason.
UNREADABLE = 0


class Message(NamedTuple):
    """A message from the pool."""

    type: int
    id: int
    operation: str
    arguments: Any  # as the wire has them; see `Wire.value`
    limit_ms: int  # 0: no limit
    listens: bool


class Raw(NamedTuple):
    """Raw arguments, or a raw result."""

    bytes_form: bool
    body: Union[bytes, memoryview]


def _plain(value: Any) -> Any:
    """Converts values that JSON lacks."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


# No NaN: it is not JSON. No unnecessary escapes: so text that is not Unicode (half a surrogate
# pair) is an error here, and not in the pool, which could not tell where it came from.
_encoder = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
)
from_json = json.JSONDecoder().decode


def to_json(value: Any) -> bytes:
    """A value as JSON text."""
    if type(value) is int:
        return b"%d" % value
    return _encoder.encode(value).encode()


class Wire:
    """Shared by both encodings: the inbox, the outbox, and the cancelled calls."""

    def __init__(self, channel: Channel, max_frame: int) -> None:
        self.channel = channel
        self.max_frame = max_frame
        self.inbox: Deque[Message] = deque()
        self.outbox: List[Buffer] = []
        self.large = False  # something large is in the outbox
        self.ended = False
        #: Told of the id of each ``cancel`` that comes.
        self.on_cancel: Callable[[int], None] = lambda id: None

    def flush(self) -> None:
        """Sends what was collected, in one write."""
        outbox = self.outbox
        if not outbox:
            return
        if self.large:
            self.large = False
            self.channel.write_parts(outbox)
        else:
            self.channel.write(outbox[0] if len(outbox) == 1 else b"".join(outbox))
        outbox.clear()

    def beside(self) -> "Wire":
        """Another wire with the same encoding, to collect in."""
        return type(self)(self.channel, self.max_frame)

    def add(self, other: "Wire") -> None:
        """Takes over what another wire collected."""
        self.outbox += other.outbox
        self.large = self.large or other.large

    def receive(self) -> None:
        """Waits for the next messages. At the end of input, `ended` is set."""
        raise NotImplementedError

    def look(self) -> None:
        """Reads input that has already arrived, up to a limit."""
        while not self.ended and len(self.inbox) < 1024 and self.channel.something_came():
            self.receive()

    def value(self, message: Message) -> Any:
        """The arguments of a call."""
        raise NotImplementedError

    def result(self, id: int, value: Any) -> None:
        """Collects a result. Raises, and collects nothing, if it cannot be sent."""
        raise NotImplementedError

    def error(self, id: int, about: Dict[str, Any]) -> None:
        """Collects an error."""
        raise NotImplementedError

    def progress(self, id: int, value: Any) -> None:
        """Collects a call's progress."""
        raise NotImplementedError

    def pong(self, id: int) -> None:
        """Collects the answer to a ping."""
        raise NotImplementedError

    def retire(self) -> None:
        """Collects the request to be replaced."""
        raise NotImplementedError

    def _came(self, message: Message) -> None:
        if message.type == CANCEL:
            self.on_cancel(message.id)
        else:
            self.inbox.append(message)

    def _check_size(self, size: int, what: str) -> None:
        if size > self.max_frame:
            raise OperationError(f"the {what} takes {size} bytes, of at most {self.max_frame}")


class ProtocolError(Exception):
    """The pool violated the protocol; the worker cannot continue."""
