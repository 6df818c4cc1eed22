"""One call, as the operation sees it."""

from __future__ import annotations

import sys
import time
from typing import Any, Callable, Optional

from ._errors import Cancelled, _words


class Call:
    """One call: what it may tell its caller, and whether to go on. An operation gets it by having a
    parameter named ``call``.
    """

    __slots__ = ("id", "operation", "deadline", "_listens", "_tell", "_look", "_cancelled")

    def __init__(
        self,
        id: int,
        operation: str,
        deadline: Optional[float] = None,
        listens: bool = False,
        tell: Optional[Callable[[int, Any], None]] = None,
        look: Optional[Callable[[], None]] = None,
    ) -> None:
        self.id = id
        self.operation = operation
        #: When the caller gives up, on the clock of :func:`time.monotonic`; ``None`` if never.
        self.deadline = deadline
        self._listens = listens
        self._tell = tell
        self._look = look
        self._cancelled = False

    @property
    def remaining(self) -> Optional[float]:
        """Seconds until the caller gives up: for the time limits of what you call yourself."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants the result any more: the caller took the call back, or its time is
        over. Costs about a microsecond: a long operation looks now and then.
        """
        if self._cancelled or (self.deadline is not None and self.deadline <= time.monotonic()):
            return True
        if self._look is not None:
            self._look()
        return self._cancelled

    def check(self) -> None:
        """Raises :class:`Cancelled` if nobody wants the result any more."""
        if self.cancelled:
            raise Cancelled()

    def progress(self, value: Any) -> None:
        """Tells the caller how far it is. Costs nothing if nobody listens; what cannot be sent is
        dropped with a word in the log.
        """
        if not self._listens or self._tell is None:
            return
        try:
            self._tell(self.id, value)
        except Exception as error:
            print(f"longshore: progress of {self.operation} dropped: {_words(error)}", file=sys.stderr)
