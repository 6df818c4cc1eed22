"""Exceptions that an operation may raise to give details, and how any exception is encoded for the
pool: kind, message, chain of causes, data.
"""

from __future__ import annotations

import traceback
from typing import Any, Dict, List, Optional

# Keeps the end of a traceback: that is where the error occurred.
_TRACEBACK_LIMIT = 8_000
_CHAIN_LIMIT = 16


class OperationError(Exception):
    """The operation failed, with data for the caller's program."""

    kind = "handler"

    def __init__(self, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.data = data


class BadArguments(OperationError):
    """The arguments are invalid."""

    kind = "bad_arguments"


class Cancelled(OperationError):
    """The result is no longer needed; see :meth:`longshore.worker.Call.check`."""

    kind = "cancelled"

    def __init__(self, message: str = "cancelled", data: Any = None) -> None:
        super().__init__(message, data)


def describe(error: BaseException) -> Dict[str, Any]:
    """The fields of an ``error`` message."""
    fields: Dict[str, Any] = {"kind": "handler", "message": _words(error)}
    chain = _chain(error)
    if chain:
        fields["chain"] = chain
    if isinstance(error, OperationError):
        fields["kind"] = error.kind
        if error.data is not None:
            fields["data"] = error.data
    else:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        fields["data"] = {"type": type(error).__name__, "traceback": text[-_TRACEBACK_LIMIT:]}
    return fields


def _words(error: BaseException) -> str:
    """``str(KeyError("x"))`` is ``'x'``: an exception is understandable only with its type."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # its own fault, and no reason to end the worker
        return f"{name}, which cannot be put into words"
    if isinstance(error, OperationError):
        return text
    return f"{name}: {text}" if text else name


def _chain(error: BaseException) -> List[str]:
    """The causes, outermost first. Causes can form a cycle."""
    seen = {id(error)}
    chain: List[str] = []
    cause = _cause(error)
    while cause is not None and id(cause) not in seen and len(chain) < _CHAIN_LIMIT:
        seen.add(id(cause))
        chain.append(_words(cause))
        cause = _cause(cause)
    return chain


def _cause(error: BaseException) -> Optional[BaseException]:
    if error.__cause__ is not None:
        return error.__cause__
    return None if error.__suppress_context__ else error.__context__
