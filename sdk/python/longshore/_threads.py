"""The worker's loop with several calls at a time: threads, for operations that wait a lot."""

from __future__ import annotations

import os
import queue
import select
import threading
from typing import Any, Callable, Dict, Mapping, Optional, Set

from ._call import Call
from ._operation import Operation
from ._serve import answer, answer_cancelled, answer_unreadable, call_for
from ._wire import CALL, PING, STOP, UNREADABLE, Message, Wire

# Calls to buffer besides the running ones. A pool sends no more than our concurrency at a time.
_WAITING = 1024


class Threaded:
    """Reads on the main thread, performs calls on `concurrency` others."""

    def __init__(
        self, wire: Wire, operations: Mapping[str, Operation], state: Any, concurrency: int
    ) -> None:
        self.wire = wire
        self.operations = operations
        self.state = state
        self.concurrency = concurrency
        self._lock = threading.Lock()  # of the wire's outbox, and of `_calls`
        self._calls: Dict[int, Call] = {}
        self._cancelled: Set[int] = set()  # of those in the inbox
        self._queue: "queue.SimpleQueue[Optional[Message]]" = queue.SimpleQueue()
        self._room = threading.Semaphore(_WAITING)
        self._wake_reading, self._wake_writing = os.pipe()
        self._fatal: Optional[BaseException] = None
        wire.on_cancel = self._cancel

    def run(self) -> None:
        """Runs until the pool sends `stop` or input ends. Calls that were sent before are performed."""
        threads = [
            threading.Thread(target=self._work, name=f"longshore-{number}", daemon=True)
            for number in range(self.concurrency)
        ]
        for thread in threads:
            thread.start()
        while self._wait() and self._hand_out():
            pass
        if self._fatal is None:
            for _ in threads:
                self._queue.put(None)
            for thread in threads:
                thread.join()
        if self._fatal is not None:
            raise self._fatal

    def _wait(self) -> bool:
        """Waits for input from the pool, or until one of the calls ends the worker."""
        if self.wire.channel.kept:
            self.wire.receive()
            return True
        poll = select.poll()
        poll.register(self.wire.channel.reading, select.POLLIN)
        poll.register(self._wake_reading, select.POLLIN)
        poll.poll()
        if self._fatal is not None:
            return False
        self.wire.receive()
        return True

    def _hand_out(self) -> bool:
        inbox = self.wire.inbox
        while inbox:
            message = inbox.popleft()
            if message.type == CALL:
                self._room.acquire()
                call = call_for(message, self._tell, None)
                call._cancelled = message.id in self._cancelled
                self._cancelled.discard(message.id)
                with self._lock:
                    self._calls[message.id] = call
                self._queue.put(message)
            elif message.type == PING:
                self._say(lambda: self.wire.pong(message.id))
            elif message.type == UNREADABLE:
                self._say(lambda: answer_unreadable(self.wire, message))
            elif message.type == STOP:
                return False
        return not self.wire.ended

    def _work(self) -> None:
        while True:
            message = self._queue.get()
            if message is None:
                return
            self._room.release()
            try:
                self._perform(message)
            except BaseException as error:  # the worker ends, and not only this thread
                self._fatal = error
                os.write(self._wake_writing, b"!")
                return

    def _perform(self, message: Message) -> None:
        call = self._calls[message.id]
        try:
            if call._cancelled:
                self._say(lambda: answer_cancelled(self.wire, message))
                return
            operation = self.operations.get(message.operation)
            # The answer is encoded into its own outbox: other threads must not wait for its JSON.
            own = self.wire.beside()
            answer(own, operation, self.operations, self.state, call, message)
            self._say(lambda: self.wire.add(own))
        finally:
            with self._lock:
                self._calls.pop(message.id, None)

    def _tell(self, id: int, value: Any) -> None:
        own = self.wire.beside()
        own.progress(id, value)
        self._say(lambda: self.wire.add(own))

    def retire(self) -> None:
        """Tells the pool to replace this worker."""
        self._say(self.wire.retire)

    def _say(self, collect: Callable[[], object]) -> None:
        with self._lock:
            collect()
            self.wire.flush()

    def _cancel(self, id: int) -> None:
        with self._lock:
            call = self._calls.get(id)
        if call is not None:
            call._cancelled = True
        elif any(message.id == id for message in self.wire.inbox):
            self._cancelled.add(id)
