"""One call, as the operation sees it."""

from __future__ import annotations

import sys
import time
from typing import Any, Callable, Optional

from ._errors import Cancelled, _words


class Call:
    """One call: reports progress, and tells whether it was cancelled. An operation gets it by having a
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
        #: The call's deadline, on the clock of :func:`time.monotonic`; ``None`` if never.
        self.deadline = deadline
        self._listens = listens
        self._tell = tell
        self._look = look
        self._cancelled = False

    @property
    def remaining(self) -> Optional[float]:
        """Seconds until the call's deadline, for the time limits of your own calls."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer needed: the caller cancelled the call, or its time is
        over. Costs about a microsecond: a long operation looks now and then.
        """
        if self._cancelled or (self.deadline is not None and self.deadline <= time.monotonic()):
            return True
        if self._look is not None:
            self._look()
        return self._cancelled

    def check(self) -> None:
        """Raises :class:`Cancelled` if the result is no longer needed."""
        if self.cancelled:
            raise Cancelled()

    def progress(self, value: Any) -> None:
        """Reports progress to the caller. Costs nothing if the caller does not listen; a value that
        cannot be sent is dropped and logged.
        """
        if not self._listens or self._tell is None:
            return
        try:
            self._tell(self.id, value)
        except Exception as error:
            print(f"longshore: progress of {self.operation} dropped: {_words(error)}", file=sys.stderr)
