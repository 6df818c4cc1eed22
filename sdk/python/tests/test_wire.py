"""Both forms of messages, cut into pieces in every way."""

import json
import os
import struct
import threading
import unittest
from typing import Any, List, Type

from longshore._channel import Channel
from longshore._frames import Frames
from longshore._lines import Lines
from longshore._wire import CALL, PING, STOP, ProtocolError, Wire


class Pipe:
    """A wire whose other end is in our hands."""

    def __init__(self, form: Type[Wire], max_frame: int = 1 << 20) -> None:
        reading, self.to_wire = os.pipe()
        self.from_wire, writing = os.pipe()
        self.wire = form(Channel(reading, writing), max_frame)
        self._open = {reading, writing, self.to_wire, self.from_wire}

    def __enter__(self) -> "Pipe":
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in list(self._open):
            self.close(descriptor)

    def close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.remove(descriptor)
            os.close(descriptor)

    def feed(self, *pieces: bytes) -> List[Any]:
        """What the wire makes of these pieces, each written once the one before was read."""
        writer = threading.Thread(target=self._write, args=(pieces,))
        writer.start()
        while not self.wire.ended:
            self.wire.receive()
        writer.join()
        return [(m.type, m.id, m.operation) for m in self.wire.inbox]

    def _write(self, pieces: Any) -> None:
        for piece in pieces:
            os.write(self.to_wire, piece)
        self.close(self.to_wire)


def feed(form: Type[Wire], *pieces: bytes) -> List[Any]:
    with Pipe(form) as pipe:
        return pipe.feed(*pieces)


def frame(type: int, id: int, name: bytes = b"", body: bytes = b"", form: int = 0) -> bytes:
    return struct.pack("<IBBHIQ", 16 + len(name) + len(body), type, form, len(name), 0, id) + name + body


FRAMES = frame(1, 7, b"double", b"21") + frame(3, 8) + frame(1, 9, b"noop") + frame(4, 0)
LINES = b"".join(
    json.dumps(one).encode() + b"\n"
    for one in [
        {"type": "call", "id": 7, "operation": "double", "arguments": 21},
        {"type": "ping", "id": 8},
        {"type": "call", "id": 9, "operation": "noop"},
        {"type": "stop"},
    ]
)
MEANT = [(CALL, 7, "double"), (PING, 8, ""), (CALL, 9, "noop"), (STOP, 0, "")]


class Wires(unittest.TestCase):
    def test_messages_cut_anywhere_are_the_same(self) -> None:
        for form, data in ((Frames, FRAMES), (Lines, LINES)):
            for at in range(1, len(data)):
                self.assertEqual(feed(form, data[:at], data[at:]), MEANT, (form, at))
            single = [data[at : at + 1] for at in range(len(data))]
            self.assertEqual(feed(form, *single), MEANT)

    def test_input_that_ends_in_a_message_gives_what_was_whole(self) -> None:
        for form, data in ((Frames, FRAMES), (Lines, LINES)):
            for at in range(1, len(data)):
                got = feed(form, data[:at])
                self.assertEqual(got, MEANT[: len(got)])
                self.assertLess(len(got), len(MEANT))

    def test_large_arguments_come_whole(self) -> None:
        body = os.urandom(300_000)
        with Pipe(Frames) as pipe:
            pipe.feed(frame(1, 1, b"echo", body, form=1) + frame(3, 2))
            self.assertEqual([m.type for m in pipe.wire.inbox], [CALL, PING])
            self.assertEqual(pipe.wire.value(pipe.wire.inbox[0]), body)

    def test_a_frame_that_cannot_be_is_the_end(self) -> None:
        for wrong in (b"\xff" * 40, bytes(40), struct.pack("<IBBHIQ", 16, 1, 0, 999, 0, 1)):
            with self.assertRaises(ProtocolError):
                feed(Frames, wrong)

    def test_many_answers_are_one_write_and_large_ones_come_whole(self) -> None:
        for form in (Frames, Lines):
            with Pipe(form, 10 << 20) as pipe:
                self.many_answers(form, pipe, [0, 1, 40_000, 3, 700_000])

    def many_answers(self, form: Type[Wire], pipe: Pipe, sizes: List[int]) -> None:
        for id, size in enumerate(sizes):
            pipe.wire.result(id, b"x" * size)
        got = bytearray()
        reader = threading.Thread(target=lambda: got.extend(_read_all(pipe.from_wire)))
        reader.start()
        pipe.wire.flush()
        self.assertEqual(pipe.wire.outbox, [])
        pipe.close(pipe.wire.channel.writing)
        reader.join()
        bodies = sum(sizes) if form is Frames else sum((size + 2) // 3 * 4 for size in sizes)
        self.assertGreaterEqual(len(got), bodies)
        self.assertLess(len(got), bodies + 60 * len(sizes))

    def test_what_is_too_large_or_no_json_is_not_collected(self) -> None:
        for form in (Frames, Lines):
            with Pipe(form, 1000) as pipe:
                wire = pipe.wire
                for wrong in (b"x" * 1000, "x" * 1000, float("nan"), float("inf"), {1}, "\ud800", object()):
                    with self.assertRaises(Exception):
                        wire.result(1, wrong)
                self.assertEqual(wire.outbox, [])


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 1 << 16):
        parts.append(part)
    return b"".join(parts)


if __name__ == "__main__":
    unittest.main()
