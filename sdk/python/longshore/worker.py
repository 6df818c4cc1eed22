"""A worker: operations that a pool can call, in a persistent process.

    from longshore.worker import Worker

    worker = Worker()

    @worker.operation("double", description="Twice the number.", idempotent=True)
    def double(number: int) -> int:
        return 2 * number

    worker.run()
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any, Callable, Dict, Optional, TypeVar, Union

from . import __version__
from ._call import Call
from ._channel import Channel, PoolGone
from ._errors import BadArguments, Cancelled, OperationError
from ._handshake import failed, greet, ready
from ._operation import Operation, built_in, operation
from ._serve import Serial
from ._threads import Threaded

__all__ = ["BadArguments", "Call", "Cancelled", "OperationError", "Worker"]

Function = TypeVar("Function", bound=Callable[..., Any])


class Worker:
    """Operations by name, and the state that they share between calls.

    ``concurrency`` is how many calls run at a time, on threads: for operations that wait a lot. They
    share one state.
    """

    def __init__(self, *, concurrency: int = 1) -> None:
        if concurrency < 1:
            raise ValueError("a worker performs at least one call at a time")
        self._concurrency = concurrency
        self._operations: Dict[str, Operation] = {one.about["name"]: one for one in built_in()}
        self._init: Callable[[], Any] = lambda: None
        self._cleanup: Optional[Callable[[Any], Any]] = None
        self._serving: Union[Serial, Threaded, None] = None
        # Under a pool, standard output is redirected at once: modules imported from here on may print.
        self._channel = Channel.take() if "LONGSHORE_WORKER" in os.environ else None

    def operation(
        self,
        name: str,
        *,
        description: Optional[str] = None,
        timeout: Optional[float] = None,
        idempotent: bool = False,
    ) -> Callable[[Function], Function]:
        """Registers a function as an operation; the function itself is unchanged.

        A single parameter takes the call's arguments whole; several take the fields of an object.
        Parameters named ``call`` and ``state`` get the :class:`Call` and what ``init`` returned. Type
        hints are checked, and become the schema. The description is the docstring's first paragraph
        unless given; ``timeout`` is in seconds, for callers that set none; ``idempotent`` says that a
        call may be repeated.
        """

        def add(function: Function) -> Function:
            made = operation(function, name, description, timeout, idempotent)
            self._operations[name] = made
            return function

        return add

    def init(self, function: Function) -> Function:
        """Registers the function that creates the state, before the first call. If it raises, the pool
        gets the error, and the worker is not ready.
        """
        self._init = function
        return function

    def cleanup(self, function: Function) -> Function:
        """Registers the function that gets the state when the worker ends normally."""
        self._cleanup = function
        return function

    def retire(self) -> None:
        """Asks the pool to replace this worker; calls may still arrive until then."""
        if self._serving is not None:
            self._serving.retire()

    def run(self) -> None:
        """Runs calls of the pool that started this process, until the pool stops it."""
        if self._channel is None and sys.stdin is not None and sys.stdin.isatty():
            print("This is a worker: a Longshore pool starts it and talks to it.", file=sys.stderr)
            print(f"To try it: python3 -m longshore.check -- python3 {sys.argv[0]}", file=sys.stderr)
            sys.exit(2)
        channel = self._channel or Channel.take()
        try:
            self._live(channel)
        except PoolGone:
            pass  # the pool is gone; `_live` has cleaned up

    def _live(self, channel: Channel) -> None:
        hello = greet(channel)
        if hello is None:
            return
        _shrug_at_interrupts()
        try:
            state = self._init()
        except Exception as error:
            failed(channel, error)
            raise
        try:
            wire = ready(
                channel,
                hello,
                [one.about for one in self._operations.values()],
                self._concurrency,
                f"longshore-python/{__version__}",
            )
            if self._concurrency == 1:
                self._serving = Serial(wire, self._operations, state)
            else:
                self._serving = Threaded(wire, self._operations, state, self._concurrency)
            self._serving.run()
        finally:
            if self._cleanup is not None:
                self._cleanup(state)


def _shrug_at_interrupts() -> None:
    """The pool handles Ctrl-C. Not `SIG_IGN`: programs that an operation starts would inherit it.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda number, frame: None)
