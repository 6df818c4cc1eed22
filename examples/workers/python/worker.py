"""A worker in Python with the operations that `longshore.check` looks for."""

import time

from longshore.worker import Call, OperationError, Worker

worker = Worker()


@worker.operation("double", idempotent=True)
def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


@worker.operation("slow", timeout=60)
def slow(call: Call, *, steps: int = 10, ms: int = 100) -> str:
    """Takes its time, says how far it is, and gives up when nobody waits."""
    for step in range(1, steps + 1):
        call.check()
        time.sleep(ms / 1000)
        call.progress({"step": step, "of": steps})
    return "done"


@worker.operation("fail")
def fail(words: str = "it failed") -> None:
    """Fails, for a reason."""
    try:
        int(words)
    except ValueError as reason:
        raise OperationError(words, data={"words": words}) from reason


@worker.operation("print")
def print_words(words: str) -> int:
    """Prints, as a library might."""
    print(words, end="")
    return len(words)


worker.run()
