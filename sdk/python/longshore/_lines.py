"""JSON lines: one message a line."""

from __future__ import annotations

import base64
import re
from typing import Any, Dict

from ._wire import (
    CALL,
    CANCEL,
    LARGE,
    PING,
    STOP,
    UNREADABLE,
    Message,
    Raw,
    Wire,
    from_json,
    to_json,
)

_TYPES = {"call": CALL, "cancel": CANCEL, "ping": PING, "stop": STOP}
_CALL_ID = re.compile(rb'^\{\s*"type"\s*:\s*"call"\s*,\s*"id"\s*:\s*(\d+)')


class Lines(Wire):
    """One JSON object a line."""

    def receive(self) -> None:
        data = self._whole_lines()
        self.ended = not data
        for line in data.split(b"\n"):
            if line:
                self._take(line)

    def _whole_lines(self) -> bytes:
        data = self.channel.read()
        if data.endswith(b"\n") or not data:
            return data
        parts = [data]
        while not parts[-1].endswith(b"\n"):
            more = self.channel.read()
            if not more:  # half a line is no message
                return b"".join(parts).rpartition(b"\n")[0]
            parts.append(more)
        return b"".join(parts)

    def _take(self, line: bytes) -> None:
        try:
            said = from_json(str(line, "utf-8"))
        except (ValueError, RecursionError) as error:
            self._unreadable(line, error)
            return
        type = _TYPES.get(str(said.get("type"))) if isinstance(said, dict) else None
        if type is None:
            return
        arguments = said.get("arguments")
        if "arguments_base64" in said:
            arguments = base64.b64decode(said["arguments_base64"])
        self._came(
            Message(
                type,
                said.get("id", 0),
                said.get("operation", ""),
                arguments,
                said.get("timeout_ms") or 0,
                bool(said.get("progress")),
            )
        )

    def _unreadable(self, line: bytes, error: Exception) -> None:
        """JSON may contain values that Python cannot parse, such as a number of 5,000 digits. The
        caller gets an error if the line has a call's id.
        """
        call = _CALL_ID.match(line)
        if call is not None:
            reason = f"the arguments cannot be read: {error}"
            self._came(Message(UNREADABLE, int(call.group(1)), "", reason, 0, False))

    def value(self, message: Message) -> Any:
        return message.arguments

    def result(self, id: int, value: Any) -> None:
        if isinstance(value, Raw):
            value = value.body
        if isinstance(value, (bytes, bytearray, memoryview)):
            text = b'"value_base64":"%b"' % base64.b64encode(value)
        else:
            text = b'"value":%b' % to_json(value)
        self._collect(b'{"type":"result","id":%d,%b}\n' % (id, text))

    def _collect(self, line: bytes) -> None:
        self._check_size(len(line), "message")
        self.outbox.append(line)
        self.large = self.large or len(line) > LARGE

    def error(self, id: int, about: Dict[str, Any]) -> None:
        self._collect(to_json({"type": "error", "id": id, **about}) + b"\n")

    def progress(self, id: int, value: Any) -> None:
        self._collect(b'{"type":"progress","id":%d,"value":%b}\n' % (id, to_json(value)))

    def pong(self, id: int) -> None:
        self.outbox.append(b'{"type":"pong","id":%d}\n' % id)

    def retire(self) -> None:
        self.outbox.append(b'{"type":"retire"}\n')
