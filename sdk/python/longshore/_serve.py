"""The worker's loop: one call after the other."""

from __future__ import annotations

import time
from typing import Any, Dict, Mapping, Optional, Set

from ._call import Call
from ._errors import describe
from ._operation import Operation
from ._wire import CALL, PING, STOP, UNREADABLE, Message, Wire

# An answer may wait for the next one only if that takes less than this.
_QUICK = 100e-6
# At most so many answers wait.
_HELD = 32


class Serial:
    """Performs calls one at a time, in the order of arrival, without a thread: messages that arrive
    meanwhile are read when the operation checks whether it is cancelled.
    """

    def __init__(self, wire: Wire, operations: Mapping[str, Operation], state: Any) -> None:
        self.wire = wire
        self.operations = operations
        self.state = state
        self._now: Optional[int] = None
        self._call: Optional[Call] = None
        self._cancelled: Set[int] = set()
        wire.on_cancel = self._cancel

    def run(self) -> None:
        """Runs until the pool sends `stop` or input ends. Calls that were sent before are performed."""
        wire, inbox = self.wire, self.wire.inbox
        while True:
            if not inbox:
                wire.flush()
                if wire.ended:
                    return
                wire.receive()
                continue
            message = inbox.popleft()
            if message.type == CALL:
                self._perform(message)
            elif message.type == PING:
                wire.pong(message.id)
            elif message.type == UNREADABLE:
                answer_unreadable(wire, message)
            elif message.type == STOP:
                wire.flush()
                return

    def _perform(self, message: Message) -> None:
        wire, operation = self.wire, self.operations.get(message.operation)
        # If this worker dies, the pool treats the first unanswered call as started and sends the later
        # ones to another worker. So answers may be held back only while calls run that may be
        # repeated, and only for a moment.
        held = operation is not None and operation.idempotent
        if not held or not operation.quick:  # type: ignore[union-attr]
            wire.flush()
        self._now = message.id
        self._call = call = self._call_for(message, operation)
        begun = time.monotonic() if held else 0.0
        try:
            if message.id in self._cancelled:
                answer_cancelled(wire, message)
            else:
                answer(wire, operation, self.operations, self.state, call, message)
        finally:
            self._cancelled.discard(message.id)
            self._now = self._call = None
        if held:
            quick = time.monotonic() - begun < _QUICK
            operation.quick = quick  # type: ignore[union-attr]
            held = quick and not wire.large and len(wire.outbox) < _HELD
        if not held:
            wire.flush()

    def _call_for(self, message: Message, operation: Optional[Operation]) -> Optional[Call]:
        if operation is None or not operation.wants_call:
            return None
        return call_for(message, self._tell, self.wire.look)

    def _tell(self, id: int, value: Any) -> None:
        self.wire.progress(id, value)
        self.wire.flush()

    def retire(self) -> None:
        """Tells the pool to replace this worker."""
        self.wire.retire()
        self.wire.flush()

    def _cancel(self, id: int) -> None:
        if id == self._now:
            if self._call is not None:
                self._call._cancelled = True
        elif any(message.id == id for message in self.wire.inbox):
            self._cancelled.add(id)


def call_for(message: Message, tell: Any, look: Any) -> Call:
    """The call, as its operation sees it."""
    limit = message.limit_ms
    deadline = time.monotonic() + limit / 1000 if limit else None
    return Call(message.id, message.operation, deadline, message.listens, tell, look)


def answer(
    wire: Wire,
    operation: Optional[Operation],
    operations: Mapping[str, Operation],
    state: Any,
    call: Optional[Call],
    message: Message,
) -> None:
    """Performs a call and collects its result or error."""
    if operation is None:
        words = f"no such operation (known: {', '.join(sorted(operations))})"
        wire.error(message.id, {"kind": "unknown_operation", "message": words})
        return
    try:
        arguments = message.arguments if operation.raw else wire.value(message)
        wire.result(message.id, operation.run(state, call, arguments))
    except Exception as error:
        answer_error(wire, message.id, describe(error))


def answer_error(wire: Wire, id: int, about: Dict[str, Any]) -> None:
    """Collects an error; if it cannot be encoded, the parts that can."""
    try:
        wire.error(id, about)
    except Exception:
        words = about["message"][:4000].encode("utf-8", "backslashreplace").decode()
        wire.error(id, {"kind": about["kind"], "message": words})


def answer_cancelled(wire: Wire, message: Message) -> None:
    """Collects the answer to a call that was cancelled before it started."""
    wire.error(message.id, {"kind": "cancelled", "message": "cancelled before it began"})


def answer_unreadable(wire: Wire, message: Message) -> None:
    """Collects the answer to a call with invalid arguments."""
    wire.error(message.id, {"kind": "bad_arguments", "message": message.arguments})
