"""Binary frames: a header of 20 bytes, a name, a body."""

from __future__ import annotations

import struct
from typing import Any, Dict, Union

from ._errors import BadArguments
from ._wire import (
    CALL,
    ERROR,
    LARGE,
    PONG,
    PROGRESS,
    RESULT,
    RETIRE,
    Message,
    ProtocolError,
    Raw,
    Wire,
    from_json,
    to_json,
)

_LISTENS = 1 << 31


class Frames(Wire):
    """Length-prefixed binary frames."""

    _header = struct.Struct("<IBBHIQ")
    _length = struct.Struct("<I")

    def receive(self) -> None:
        data: Union[bytes, bytearray] = self.channel.read()
        at, end = 0, len(data)
        self.ended = end == 0
        while at < end:
            after = self._frame_end(data, at, end)
            if after > end:
                data = self._complete(data, at, end)
                if self.ended:
                    return
                at, end = 0, len(data)
                after = end
            self._take(data, at, after)
            at = after

    def _frame_end(self, data: Union[bytes, bytearray], at: int, end: int) -> int:
        if end - at < 20:
            return end + 1
        (length,) = self._length.unpack_from(data, at)
        if length > self.max_frame + 20 or length < 16:
            raise ProtocolError(f"a frame of {length} bytes")
        return at + 4 + int(length)

    def _complete(self, data: Union[bytes, bytearray], at: int, end: int) -> bytearray:
        """The frame that has not arrived completely."""
        frame = bytearray(data[at:end])
        for _ in ("header", "body"):
            have = len(frame)
            want = 20 if have < 20 else self._frame_end(frame, 0, have)
            frame.extend(bytes(want - have))
            if not self.channel.fill(frame, have):
                self.ended = True
                break
        return frame

    def _take(self, data: Union[bytes, bytearray], at: int, after: int) -> None:
        _, type, form, name, limit, id = self._header.unpack_from(data, at)
        body = at + 20 + name
        if body > after:
            raise ProtocolError("a name longer than its frame")
        if type == CALL:
            operation = data[at + 20 : body].decode()
            if after - body > LARGE:
                raw = Raw(form == 1, memoryview(data)[body:after])
            else:
                raw = Raw(form == 1, bytes(data[body:after]))
            listens = limit >= _LISTENS
            self.inbox.append(
                Message(CALL, id, operation, raw, limit & (_LISTENS - 1), listens)
            )
        else:
            self._came(Message(type, id, "", None, 0, False))

    def value(self, message: Message) -> Any:
        bytes_form, body = message.arguments
        if bytes_form:
            return bytes(body)
        if not body:
            return None
        try:
            return from_json(str(body, "utf-8"))
        except (ValueError, RecursionError) as error:
            raise BadArguments(f"the arguments cannot be read: {error}") from None

    def result(self, id: int, value: Any) -> None:
        if value is None:
            self.outbox.append(self._header.pack(16, RESULT, 0, 0, 0, id))
            return
        if isinstance(value, Raw):
            self._send(RESULT, id, value.body, value.bytes_form)
        elif isinstance(value, (bytes, bytearray, memoryview)):
            self._send(RESULT, id, value, True)
        else:
            self._send(RESULT, id, to_json(value), False)

    def _send(
        self, type: int, id: int, body: Union[bytes, bytearray, memoryview], raw: bool
    ) -> None:
        size = body.nbytes if isinstance(body, memoryview) else len(body)
        self._check_size(size + 20, "message")
        header = self._header.pack(16 + size, type, raw, 0, 0, id)
        if size <= LARGE:
            self.outbox.append(header + bytes(body))
            return
        if isinstance(body, memoryview) and not body.contiguous:
            body = bytes(body)
        self.outbox += (header, memoryview(body).cast("B"))
        self.large = True

    def error(self, id: int, about: Dict[str, Any]) -> None:
        self._send(ERROR, id, to_json(about), False)

    def progress(self, id: int, value: Any) -> None:
        self._send(PROGRESS, id, to_json(value), False)

    def pong(self, id: int) -> None:
        self.outbox.append(self._header.pack(16, PONG, 0, 0, 0, id))

    def retire(self) -> None:
        self.outbox.append(self._header.pack(16, RETIRE, 0, 0, 0, 0))
