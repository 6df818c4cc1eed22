"""Scripts, commands and Python functions on the workers of a pool (``longshore dispatch start``).

    pool = Pool("pool")
    part = pool.submit(["make", "-j4"], threads=4, memory="8GB", time="1:30:00")
    done = pool.submit_script("report.sh", after=[part]).wait()
    print(done.exit_code, done.output)
    pool.submit_array("job.sh", "1-100").wait()

    with DispatchExecutor("pool") as executor:
        print(sum(executor.map(pow, range(10), range(10))))

Everything goes through the program ``longshore``: the one in ``PATH``, or ``program``.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time as clock
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

__all__ = ["Array", "ArrayResult", "DispatchError", "DispatchExecutor", "Pool", "Result", "Task"]

PathText = Union[str, "os.PathLike[str]"]
Dependency = Union["Task", "Array"]

FINAL = ("done", "failed", "cancelled")
"""The states of a unit that has ended."""
POLL_INTERVAL = 0.05
"""Seconds between two searches for results of an executor."""
CHECK_INTERVAL = 2.0
"""Seconds between two searches for tasks that ended without a result."""


class DispatchError(Exception):
    """The program ``longshore`` reported an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        """Its exit code: 2 for invalid use, 5 if the queue is full."""


@dataclasses.dataclass(frozen=True)
class Result:
    """How a script ended."""

    state: str
    """``done``, ``failed`` or ``cancelled``."""
    exit_code: Optional[int]
    """The script's exit code; ``None`` if a signal, a limit or a cancellation ended it."""
    output: str
    """The last 4 KiB of stdout and stderr, unless the output went elsewhere."""
    failure: Optional[str]
    """Why it failed."""
    view: Mapping[str, Any]
    """All that ``longshore unit wait --json`` says."""

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.state == "done"


@dataclasses.dataclass(frozen=True)
class ArrayResult:
    """How an array ended."""

    status: str
    total: int
    done: int
    failed: int
    cancelled: int

    @property
    def ok(self) -> bool:
        """Whether all its scripts succeeded."""
        return self.done == self.total


class Task:
    """A script in a pool."""

    def __init__(self, pool: Pool, unit: str) -> None:
        self.pool = pool
        self.unit = unit
        """The id of its unit, or a task of an array as ``12.3``."""

    def state(self) -> str:
        """Its state: ``blocked``, ``scheduled``, ``ready``, ``leased``, or how it ended."""
        return str(self.pool._json("unit", "show", self.unit)["state"])

    def wait(self, timeout: Optional[float] = None) -> Result:
        """Waits for its end. Raises ``TimeoutError`` if it has not ended after ``timeout`` seconds."""
        limit = [] if timeout is None else ["--limit", f"{timeout}s"]
        code, out, err = self.pool._run("unit", "wait", self.unit, *limit, "--json")
        if not out:
            if timeout is not None and self.state() not in FINAL:
                raise TimeoutError(f"unit {self.unit} has not ended after {timeout} seconds")
            raise DispatchError(code, err)
        return _result(json.loads(out))

    def cancel(self) -> None:
        """Cancels it. A running script is ended. Nothing happens if it has ended."""
        code, _, err = self.pool._run("unit", "cancel", self.unit, "--json")
        if code != 0 and self.state() not in FINAL:
            raise DispatchError(code, err)

    def output(self) -> bytes:
        """Its output, wherever it was kept."""
        return self.pool._bytes("batch", "cat", self.unit)

    def explain(self) -> Mapping[str, Any]:
        """Why it does not run."""
        return self.pool._json("unit", "explain", self.unit)


class Array:
    """An array in a pool. ``array[3]`` is its script with index 3."""

    def __init__(self, pool: Pool, name: str, number: int, units: int) -> None:
        self.pool = pool
        self.name = name
        self.number = number
        self._units = units

    def __len__(self) -> int:
        return self._units

    def __getitem__(self, index: int) -> Task:
        return Task(self.pool, f"{self.name}.{index}")

    def status(self) -> ArrayResult:
        """Its counts now."""
        return _array_result(self.pool._json("batch", "status", self.name))

    def wait(self, timeout: Optional[float] = None) -> ArrayResult:
        """Waits for its end. Raises ``TimeoutError`` if it has not ended after ``timeout`` seconds."""
        limit = [] if timeout is None else ["--limit", f"{timeout}s"]
        code, out, err = self.pool._run("batch", "watch", self.name, *limit, "--json")
        last = json.loads(out.splitlines()[-1]) if out else {}
        if last.get("status") not in ("complete", "failed", "cancelled"):
            if timeout is not None:
                raise TimeoutError(f"array {self.name} has not ended after {timeout} seconds")
            raise DispatchError(code, err)
        return _array_result(last)

    def cancel(self) -> None:
        """Cancels what waits, and ends what runs."""
        self.pool._json("batch", "cancel", self.name)

    def retry(self) -> None:
        """Runs its failed scripts again."""
        self.pool._json("batch", "retry", self.name)

    def output(self) -> bytes:
        """The output of all its scripts, in the order of their indices."""
        return self.pool._bytes("batch", "cat", self.name)

    def units(self) -> List[str]:
        """The ids of its units."""
        listed = self.pool._json("unit", "list", "--batch", self.name, "--limit", "10000")
        return [str(unit["unit"]) for unit in listed]


class Pool:
    """A pool that ``longshore dispatch start`` has started.

    :param folder: its folder; without it ``LONGSHORE_DISPATCH_DIR``, or ``~/.longshore/dispatch``
    :param program: the program ``longshore``
    """

    def __init__(self, folder: Optional[PathText] = None, program: PathText = "longshore") -> None:
        named = folder or os.environ.get("LONGSHORE_DISPATCH_DIR") or Path.home() / ".longshore" / "dispatch"
        self.folder = Path(named)
        self.program = os.fspath(program)

    def submit(self, command: Sequence[PathText], **options: Any) -> Task:
        """Submits a command. No shell changes its words. Options: see :meth:`submit_script`."""
        if isinstance(command, (str, bytes)) or not command:
            raise TypeError("a command is a list of words; `submit_script` runs a script")
        return self._submit_one([], command, options)

    def submit_script(self, path: PathText, args: Sequence[PathText] = (), **options: Any) -> Task:
        """Submits a script, which runs with bash.

        Options: ``threads``, ``memory`` ("8GB"), ``time`` (seconds, or "1:30:00"), ``resources`` ({"gpu": 0.5}),
        ``pin`` (processors of its own), ``after`` (tasks and arrays), ``env`` (a mapping), ``cwd``, ``name``,
        ``priority``, ``retries``, ``output`` ("tail", "none", "files:PATTERN", "stream:DIR"),
        ``snapshot``.
        """
        return self._submit_one(["--script", os.fspath(path)], args, options)

    def submit_array(
        self,
        what: Union[PathText, Sequence[PathText]],
        indices: Optional[str] = None,
        lines: Optional[Sequence[str]] = None,
        args: Sequence[PathText] = (),
        **options: Any,
    ) -> Array:
        """Submits a script, or a command (a list), once per index ("1-100%5") or once per line.

        A script finds its index in ``LONGSHORE_ARRAY_INDEX`` and its line in ``LONGSHORE_LINE``.
        """
        if (indices is None) == (lines is None):
            raise TypeError("an array has either indices or lines")
        if isinstance(what, (str, os.PathLike)):
            words, rest = ["--script", os.fspath(what)], args
        else:
            words, rest = [], what
        text = None
        if lines is not None:
            if any("\n" in line for line in lines):
                raise ValueError("a line of an array has a line feed")
            words, text = [*words, "--each-line", "-"], "".join(f"{line}\n" for line in lines)
        else:
            words = [*words, "--array", str(indices)]
        sent = self._submit(words, rest, options, text)
        return Array(self, str(sent["batch"]), int(sent["number"]), int(sent["units"]))

    def task(self, unit: str) -> Task:
        """A script that was submitted before: the id of its unit, or ``12.3``."""
        return Task(self, unit)

    def status(self) -> Mapping[str, Any]:
        """The pool's status, as ``longshore dispatch status --json`` says it."""
        return self._json("dispatch", "status")

    def _submit_one(self, words: List[str], args: Sequence[PathText], options: Dict[str, Any]) -> Task:
        return Task(self, str(self._submit(words, args, options)["unit"]))

    def _submit(
        self, words: List[str], args: Sequence[PathText], options: Dict[str, Any], text: Optional[str] = None
    ) -> Any:
        command = ["submit", *words, *_options(options)]
        # The words of a command come last, after all options of `submit`.
        code, out, err = self._run(*command, "--json", after=[os.fspath(arg) for arg in args], text=text)
        if code != 0:
            raise DispatchError(code, err)
        return json.loads(out)

    def _json(self, *words: str) -> Any:
        code, out, err = self._run(*words, "--json")
        if code != 0:
            raise DispatchError(code, err)
        return json.loads(out)

    def _bytes(self, *words: str) -> bytes:
        ran = subprocess.run(self._command(words), stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if ran.returncode != 0:
            raise DispatchError(ran.returncode, ran.stderr.decode(errors="replace").strip())
        return ran.stdout

    def _run(self, *words: str, after: Sequence[str] = (), text: Optional[str] = None) -> "tuple[int, str, str]":
        command = self._command(words) + (["--", *after] if after else [])
        ran = subprocess.run(command, input=text or "", capture_output=True, text=True, check=False)
        return ran.returncode, ran.stdout, ran.stderr.strip()

    def _command(self, words: Sequence[str]) -> List[str]:
        return [self.program, *words, "--dir", os.fspath(self.folder)]


def _options(options: Dict[str, Any]) -> List[str]:
    """The options of ``submit`` as words of the command line."""
    plain = {"threads": "nthr", "memory": "mem", "name": "name", "priority": "priority", "retries": "retries",
             "output": "output", "cwd": "cwd", "key": "key"}
    words: List[str] = []
    for key, value in options.items():
        if value is None:
            continue
        if key in plain:
            words.append(f"--{plain[key]}={value}")
        elif key == "time":
            words.append(f"--time={value if isinstance(value, str) else f'{value}s'}")
        elif key == "env":
            words.extend(f"--env={name}={text}" for name, text in value.items())
        elif key == "resources":
            words.extend(f"--resource={name}={amount}" for name, amount in value.items())
        elif key == "after":
            for dependency in value:
                units = dependency.units() if isinstance(dependency, Array) else [dependency.unit]
                words.extend(f"--after={unit}" for unit in units)
        elif key in ("pin", "snapshot"):
            words.extend([f"--{key}"] if value else [])
        else:
            raise TypeError(f"unknown option `{key}`")
    return words


def _result(view: Mapping[str, Any]) -> Result:
    report = view.get("report") or {}
    end = report.get("end")
    failure = view.get("failure")
    return Result(
        state=view["state"],
        exit_code=end.get("exited") if isinstance(end, dict) else None,
        output=report.get("tail", ""),
        failure=f"{failure['code']}: {failure['message']}" if failure else None,
        view=view,
    )


def _array_result(batch: Mapping[str, Any]) -> ArrayResult:
    counts = [int(batch[key]) for key in ("total", "done", "failed", "cancelled")]
    return ArrayResult(str(batch["status"]), *counts)


class DispatchExecutor(concurrent.futures.Executor):
    """Runs functions on the workers of a pool.

    Functions and arguments are pickled, so functions must be importable where a worker runs, by the same
    Python. Results are files in ``folder``, which all workers must see.
    """

    def __init__(
        self,
        pool: Union[Pool, PathText, None] = None,
        folder: Optional[PathText] = None,
        **options: Any,
    ) -> None:
        self._pool = pool if isinstance(pool, Pool) else Pool(pool)
        self._options = {"output": "tail", **options}
        self._own_folder = folder is None
        self._folder = Path(folder) if folder else Path(tempfile.mkdtemp(prefix="calls-", dir=self._pool.folder))
        self._lock = threading.Lock()
        self._calls: Dict[int, "tuple[Task, concurrent.futures.Future[Any]]"] = {}
        self._next = 0
        self._closed = False
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "concurrent.futures.Future[Any]":
        """Runs ``fn(*args, **kwargs)`` on a worker."""
        call = pickle.dumps((fn, args, kwargs))
        with self._lock:
            if self._closed:
                raise RuntimeError("the executor is shut down")
            number, self._next = self._next, self._next + 1
        path = self._folder / f"{number}.call"
        path.write_bytes(call)
        # The caller's modules are found on the worker, too.
        env = {"PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}
        command = [sys.executable, "-m", "longshore.dispatch", os.fspath(path.resolve())]
        task = self._pool.submit(command, env={**env, **self._options.get("env", {})},
                                 **{key: value for key, value in self._options.items() if key != "env"})
        future: "concurrent.futures.Future[Any]" = concurrent.futures.Future()
        with self._lock:
            self._calls[number] = (task, future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accepts no more calls. Waits for all results, unless ``wait`` is false."""
        with self._lock:
            self._closed = True
            waiting = list(self._calls.values())
        if cancel_futures:
            for task, future in waiting:
                if future.cancel():
                    task.cancel()
        if wait:
            self._thread.join()

    def _collect(self) -> None:
        last_check = clock.monotonic()
        while True:
            with self._lock:
                calls = dict(self._calls)
                if self._closed and not calls:
                    break
            check = clock.monotonic() - last_check >= CHECK_INTERVAL
            for number, (task, future) in calls.items():
                if future.cancelled() or self._finish(number, task, future, check):
                    with self._lock:
                        del self._calls[number]
            if check:
                last_check = clock.monotonic()
            clock.sleep(POLL_INTERVAL)
        if self._own_folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _finish(self, number: int, task: Task, future: "concurrent.futures.Future[Any]", check: bool) -> bool:
        """Sets the result if the call has ended."""
        path = self._folder / f"{number}.result"
        try:
            ended = not path.exists() and check and task.state() in FINAL
            if path.exists():
                good, value = pickle.loads(path.read_bytes())
            elif ended:
                result = task.wait()
                good, value = False, DispatchError(3, f"the call ended without a result: {result.failure or result.state}")
            else:
                return False
        except Exception as error:  # The result cannot be read, or the pool is gone: the caller is told.
            good, value = False, error
        if future.set_running_or_notify_cancel():
            future.set_result(value) if good else future.set_exception(value)
        return True


def _run_call(path: Path) -> int:
    """Runs a pickled call and writes its result beside it. A worker runs this."""
    good: bool
    try:
        fn, args, kwargs = pickle.loads(path.read_bytes())
        good, value = True, fn(*args, **kwargs)
    except BaseException as error:
        good, value = False, error
    try:
        result = pickle.dumps((good, value))
    except Exception as error:
        result = pickle.dumps((False, DispatchError(1, f"the result cannot be pickled: {error}")))
    partial = path.with_suffix(".partial")
    partial.write_bytes(result)
    # Complete, or not there.
    os.replace(partial, path.with_suffix(".result"))
    return 0 if good else 1


if __name__ == "__main__":
    # By its real name, so that its errors can be unpickled elsewhere.
    from longshore import dispatch

    sys.exit(dispatch._run_call(Path(sys.argv[1])))
