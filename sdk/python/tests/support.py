"""Workers for tests: a few lines of source, started as a process and spoken to as a pool would."""

import sys
import textwrap
import unittest
from pathlib import Path
from typing import Any

from longshore.check.pool import Worker

ROOT = Path(__file__).resolve().parent.parent
FORMS = {"json": ("json",), "binary": ("json", "binary")}

_HEAD = """
import os, subprocess, sys, threading, time
from dataclasses import dataclass
from typing import Any, Dict, List, Optional
from longshore.worker import BadArguments, Call, Cancelled, OperationError, Worker
"""


def start(source: str, form: str = "binary", head: str = "worker = Worker()", **options: Any) -> Worker:
    """A worker of that source that has said nothing yet."""
    text = f"{_HEAD}{head}\n{textwrap.dedent(source)}\nworker.run()\n"
    variables = {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", text]
    return Worker(command, FORMS[form], patience=20, environment=variables, **options)


def ready(source: str, form: str = "binary", **options: Any) -> Worker:
    """The same, once it is ready."""
    return start(source, form, **options).wait_ready()


class BothForms(unittest.TestCase):
    """Tests that hold for JSON lines and for binary frames."""

    def each(self, source: str, **options: Any):
        """A worker in each form."""
        for form in FORMS:
            worker = ready(source, form, **options)
            self.addCleanup(worker.kill)
            yield worker

    def assert_error(self, worker: Worker, id: int, kind: str, words: str) -> Any:
        """A call came to an error of that kind, with these words in its message."""
        answer = worker.answer(id)
        self.assertEqual((answer["type"], answer.get("kind")), ("error", kind), answer)
        self.assertIn(words, answer["message"])
        return answer
