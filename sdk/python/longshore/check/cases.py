"""The cases. Each gets its own ready worker, and the notes it may add to.

A worker that has operations of these names gets more cases: `double` (a number), `fail` (raises),
`print` (prints to standard output, returns anything), `slow` (`{"steps": N, "ms": M}`: N steps of M
milliseconds each, progress after each).
"""

from __future__ import annotations

import os
import signal
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from .pool import Fault, Silence, Worker

Note = Callable[[str], None]
_FOR_EVER = {"steps": 6000, "ms": 10}


class Case(NamedTuple):
    """A statement about workers, and how to check it."""

    sentence: str
    check: Callable[[Worker, Note], None]
    needs: Optional[str] = None  # an operation


_ODD: List[Any] = [
    None, True, False, 0, -1, 0.1, 1.5e300, -2.5e-7, 9007199254740991, -9007199254740991,
    "", "0", "12", "1.50", "true", "null", "line\nbreak\r\ttab", 'quote " backslash \\ slash /',
    "\u0000\u001f\u007f", "é ß 漢字 \u2028\u2029 \ufeff", "ship 🚢, family 👨\u200d👩\u200d👧", "x" * 100_000,
    [], {}, [[]], [{}], {"a": {}}, {"a": []}, {"": 0}, {"0": "zero", "1": "one"}, [None], [1, "1", True],
    {"b": 1, "a": 2}, {"é🚢": [1, {"deep": [[], {}, None, ""]}]},
]  # fmt: skip


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same; 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return one == other
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else text[:77] + "…"


def _handshake(worker: Worker, note: Note) -> None:
    ready = worker.ready
    if ready.get("version") != 1:
        raise Fault(f"`ready` has version {ready.get('version')!r}, and not 1")
    if not isinstance(ready.get("pid"), int) or ready["pid"] <= 0:
        raise Fault(f"`ready` has pid {ready.get('pid')!r}")
    if ready["pid"] != worker.process.pid:
        note("its pid is not that of the process that was started: a wrapper should `exec` it")
    names = [one.get("name") for one in ready.get("operations", [])]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise Fault(f"`operations` must be a list of objects with a name: {names}")
    missing = {"noop", "echo"} - set(names)
    if missing:
        note(f"has no {' and no '.join(sorted(missing))}: pools use them to check a worker")
    if worker.stray:
        note(f"printed to standard output before `ready`: {_short(worker.stray[0])}")


def _noop(worker: Worker, note: Note) -> None:
    value = worker.result(worker.call("noop"))
    if value is not None:
        raise Fault(f"`noop` answered {_short(value)}, and not null")


def _echo(worker: Worker, note: Note) -> None:
    nested: Any = "bottom"
    for _ in range(100):
        nested = [{"a": nested}] if _ % 2 else [nested]
    for value in [*_ODD, nested]:
        got = worker.result(worker.call("echo", value))
        if not same(value, got):
            raise Fault(f"`echo` made {_short(got)} of {_short(value)}")
    for value in (12345678901234567890, 2**63 - 1, 0.1 + 0.2):
        got = worker.result(worker.call("echo", value))
        if not same(value, got):
            note(f"`echo` made {_short(got)} of {_short(value)}: large numbers lose digits")


def _bytes(worker: Worker, note: Note) -> None:
    for value in (b"", bytes(range(256)), os.urandom(1 << 20)):
        got = worker.result(worker.call("echo", value))
        if got != value:
            raise Fault(f"`echo` made {_short(got)} of {len(value)} bytes {_short(value)}")


def _error_of(worker: Worker, id: int, kind: str, note: Optional[Note] = None) -> Dict[str, Any]:
    answer = worker.answer(id)
    if answer["type"] != "error" or not isinstance(answer.get("message"), str):
        raise Fault(f"answered {answer}, and not with an error and a message")
    chain = answer.get("chain", [])
    if not isinstance(chain, list) or not all(isinstance(one, str) for one in chain):
        raise Fault(f"`chain` must be a list of strings: {chain!r}")
    if answer.get("kind") != kind:
        words = f"the error's kind is {answer.get('kind')!r}, and not {kind!r}"
        if note is None:
            raise Fault(words)
        note(words)
    return answer


def _unknown_operation(worker: Worker, note: Note) -> None:
    _error_of(worker, worker.call("no.such.operation", {"a": 1}), "unknown_operation")
    _noop(worker, note)


def _double(worker: Worker, note: Note) -> None:
    value = worker.result(worker.call("double", 21))
    if not same(value, 42):
        raise Fault(f"`double` of 21 is {_short(value)}")


def _bad_arguments(worker: Worker, note: Note) -> None:
    _error_of(worker, worker.call("double", {"not": "a number"}), "bad_arguments", note)
    _double(worker, note)


def _fail(worker: Worker, note: Note) -> None:
    answer = _error_of(worker, worker.call("fail", "so it goes"), "handler")
    if not answer["message"]:
        raise Fault("the error's message is empty")
    if not answer.get("chain"):
        note("the error of `fail` has no chain of causes")
    _noop(worker, note)


def _pipelined(worker: Worker, note: Note) -> None:
    ids = [worker.call("echo", {"number": number}) for number in range(100)]
    if worker.ready.get("concurrency", 1) == 1:
        for number, id in enumerate(ids):
            if worker.result(id) != {"number": number}:
                raise Fault(f"the answer to call {id} is another one's")
        return
    answers = {message["id"]: message for message in (worker.hear() for _ in ids)}
    for number, id in enumerate(ids):
        if answers.get(id, {}).get("value") != {"number": number}:
            raise Fault(f"the answer to call {id} is missing, or another one's")


def _no_answer_held(worker: Worker, note: Note) -> None:
    for _ in range(20):  # a worker that learns what is quick has learnt it now
        _noop(worker, note)
    quick, _ = worker.calls(("noop", None), ("slow", _FOR_EVER))
    worker.result(quick)


def _progress(worker: Worker, note: Note) -> None:
    answer = worker.answer(worker.call("slow", {"steps": 3, "ms": 1}, progress=True))
    if answer["type"] != "result":
        raise Fault(f"`slow` answered {answer}")
    if len(answer["progress"]) != 3:
        raise Fault(f"`slow` told its progress {len(answer['progress'])} times in 3 steps")
    answer = worker.answer(worker.call("slow", {"steps": 3, "ms": 1}))
    if answer["progress"]:
        raise Fault("told its progress though nobody listens")


def _cancel_running(worker: Worker, note: Note) -> None:
    id = worker.call("slow", _FOR_EVER, progress=True)
    first = worker.hear()
    if first["type"] != "progress":
        raise Fault(f"said {first} where progress was due")
    worker.say("cancel", id)
    worker.patience = min(worker.patience, 3.0)
    try:
        _error_of(worker, id, "cancelled")
    except Silence:
        note("does not look whether a call is cancelled")
        return
    _noop(worker, note)


def _cancel_unknown(worker: Worker, note: Note) -> None:
    worker.say("cancel", 4711)
    _noop(worker, note)


def _ping(worker: Worker, note: Note) -> None:
    worker.say("ping", 77)
    if {**worker.hear(), "value": None} != {"type": "pong", "id": 77, "value": None}:
        raise Fault("did not answer `ping` with `pong` and the same id")


def _unheard_of(worker: Worker, note: Note) -> None:
    worker.say("unheard_of", 5)
    _noop(worker, note)


def _print(worker: Worker, note: Note) -> None:
    for _ in range(3):
        worker.result(worker.call("print", "words\nand half a line"))
        _noop(worker, note)
    if worker.stray:
        note(f"what it prints stands between its messages: {_short(worker.stray[0])}")


def _interrupt(worker: Worker, note: Note) -> None:
    _noop(worker, note)
    os.kill(worker.process.pid, signal.SIGINT)
    try:
        _noop(worker, note)
    except Fault:
        note("ends when it is interrupted")


def _ends_well(worker: Worker, how: Callable[[], None]) -> None:
    ids = [worker.call("echo", number) for number in range(5)]
    how()
    answers: List[Any] = [worker.answer(id).get("value") for id in ids]
    if answers != list(range(5)) and worker.ready.get("concurrency", 1) == 1:
        raise Fault(f"answered {answers} before it ended")
    code = worker.wait_end()
    if code != 0:
        raise Fault(f"ended with exit code {code}; its last words: {worker.last_words()!r}")
    if worker.unheard():
        raise Fault(f"said more than was asked: {worker.unheard()[0]}")


def _stop(worker: Worker, note: Note) -> None:
    _ends_well(worker, lambda: worker.say("stop"))


def _end_of_input(worker: Worker, note: Note) -> None:
    _ends_well(worker, worker.end_input)


def _half_a_message(worker: Worker, note: Note) -> None:
    worker.say_half()
    worker.end_input()
    worker.wait_end()


CASES = [
    Case("says `ready`, and what it can do", _handshake),
    Case("answers `noop` with null", _noop, "noop"),
    Case("gives back odd JSON as it came", _echo, "echo"),
    Case("gives back bytes as they came", _bytes, "echo"),
    Case("refuses an operation that it does not know, and lives on", _unknown_operation, "noop"),
    Case("doubles", _double, "double"),
    Case("refuses arguments that an operation does not take", _bad_arguments, "double"),
    Case("tells that an operation failed, and lives on", _fail, "fail"),
    Case("answers 100 pipelined calls, each once", _pipelined, "echo"),
    Case("holds no answer back while the next call runs", _no_answer_held, "slow"),
    Case("tells progress to who listens", _progress, "slow"),
    Case("gives up a call that is cancelled", _cancel_running, "slow"),
    Case("does not mind a cancel of what it does not have", _cancel_unknown, "noop"),
    Case("answers a ping", _ping),
    Case("ignores what it has never heard of", _unheard_of, "noop"),
    Case("can print without harm", _print, "print"),
    Case("shrugs at an interrupt", _interrupt, "noop"),
    Case("finishes what it has on `stop`, and ends", _stop, "echo"),
    Case("finishes what it has when input ends, and ends", _end_of_input, "echo"),
    Case("ends when input ends in the middle of a message", _half_a_message),
]
