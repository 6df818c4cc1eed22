"""The handshake between pool and worker."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Optional

from ._channel import Channel
from ._errors import describe
from ._frames import Frames
from ._lines import Lines
from ._wire import ProtocolError, Wire

VERSION = 1


def greet(channel: Channel) -> Optional[Dict[str, Any]]:
    """The pool's ``hello``; nothing if input ends before it."""
    data = b""
    while b"\n" not in data:
        more = channel.read()
        if not more:
            return None
        data += more
    line, _, channel.kept = data.partition(b"\n")
    hello = json.loads(line)
    if not isinstance(hello, dict) or hello.get("type") != "hello":
        raise ProtocolError("the first message is not hello")
    if hello.get("version") != VERSION:
        message = f"the pool speaks version {hello.get('version')}, this worker {VERSION}"
        _say(channel, {"type": "failed", "message": message})
        raise ProtocolError(message)
    return hello


def ready(
    channel: Channel,
    hello: Dict[str, Any],
    operations: List[Dict[str, Any]],
    concurrency: int,
    name: str,
) -> Wire:
    """Tells the pool that this worker is ready, in the best encoding that the pool offers."""
    binary = "binary" in hello.get("encodings", ())
    about: Dict[str, Any] = {"type": "ready", "version": VERSION, "pid": os.getpid()}
    about["encoding"] = "binary" if binary else "json"
    about.update(operations=operations, name=name)
    if concurrency > 1:
        about["concurrency"] = concurrency
    _say(channel, about)
    max_frame = int(hello.get("max_frame") or 64 << 20)
    return Frames(channel, max_frame) if binary else Lines(channel, max_frame)


def failed(channel: Channel, error: BaseException) -> None:
    """Tells the pool that this worker failed to start."""
    about = describe(error)
    message = ": ".join([about["message"], *about.get("chain", ())])
    _say(channel, {"type": "failed", "message": message})


def _say(channel: Channel, message: Dict[str, Any]) -> None:
    channel.write(json.dumps(message).encode() + b"\n")
