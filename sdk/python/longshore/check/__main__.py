"""``python3 -m longshore.check [--strict] [--patience SECONDS] [--only WORDS] -- COMMAND…``"""

from __future__ import annotations

import argparse
import sys
from typing import Any, Dict, Iterator, List, Optional

from .cases import CASES, Case
from .pool import Fault, Worker

_FORMS: Dict[str, Dict[str, Any]] = {
    "JSON lines": {"encodings": ["json"]},
    "binary frames": {"encodings": ["json", "binary"]},
    "a descriptor of its own": {"encodings": ["json"], "descriptor": True},
}


class Report:
    """The results, one line per case."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.passed = self.failed = self.noted = 0

    def case(self, sentence: str, fault: Optional[str], notes: List[str]) -> None:
        """One case is done."""
        self.noted += len(notes)
        if fault is None and not (notes and self.strict):
            self.passed += 1
            print(f"  ok    {sentence}")
        else:
            self.failed += 1
            print(f"  FAIL  {sentence}")
        for line in [*([fault] if fault else []), *notes]:
            print(f"        {line}")

    def skipped(self, sentence: str, why: str) -> None:
        """One case does not apply."""
        print(f"  --    {sentence} ({why})")


class Checker:
    """Runs the cases in each encoding that the worker supports."""

    def __init__(self, command: List[str], patience: float, only: str, report: Report) -> None:
        self.command = command
        self.only = only
        self.patience = patience
        self.report = report

    def run(self) -> None:
        """The summary."""
        for form, options in _FORMS.items():
            print(f"{form}:")
            self._form(form, options)
        self._other_version()

    def _form(self, form: str, options: Dict[str, Any]) -> None:
        try:
            with self._start(options) as worker:
                known = {one.get("name") for one in worker.wait_ready().ready["operations"]}
                chose_binary = worker.binary
        except (Fault, KeyError, TypeError) as fault:
            self.report.case("starts", *self._cannot_start(options, str(fault)))
            return
        if len(options["encodings"]) == 2 and not chose_binary:
            self.report.skipped("all of it", "the worker chose JSON lines")
            return
        cases = CASES[:2] if "descriptor" in options else CASES
        for case in cases:
            if self.only not in case.sentence:
                continue
            if case.needs is not None and case.needs not in known:
                self.report.skipped(case.sentence, f"no operation `{case.needs}`")
            else:
                self._case(case, options)

    def _cannot_start(self, options: Dict[str, Any], fault: str) -> Iterator[Any]:
        if "descriptor" in options:
            return iter((None, [f"does not look at LONGSHORE_WORKER_FD: {fault}"]))
        return iter((fault, []))

    def _case(self, case: Case, options: Dict[str, Any]) -> None:
        notes: List[str] = []
        fault = None
        with self._start(options) as worker:
            try:
                case.check(worker.wait_ready(), notes.append)
            except Fault as error:
                fault = f"it {error}"
        self.report.case(case.sentence, fault, notes)

    def _start(self, options: Dict[str, Any]) -> Worker:
        return Worker(self.command, patience=self.patience, **options)

    def _other_version(self) -> None:
        """A pool of another version is rejected, one way or another."""
        print("a pool of another version:")
        fault = None
        with Worker(self.command, patience=self.patience, version=99) as worker:
            try:
                said = worker.hear()
                if said.get("type") == "ready" and said.get("version") == 99:
                    fault = "it says that it speaks version 99"
            except Fault as error:
                fault = None if "ended" in str(error) else f"it {error}"
        self.report.case("is told no", fault, [])


def main() -> None:
    """Checks the worker on the command line; the exit code says whether it passed."""
    parser = argparse.ArgumentParser(
        prog="python3 -m longshore.check", description="Checks that a program is a good worker."
    )
    parser.add_argument("--strict", action="store_true", help="a note counts as a failure")
    parser.add_argument("--patience", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--only", default="", metavar="WORDS", help="the cases with these words")
    parser.add_argument("command", nargs="+", help="after --: the worker and its arguments")
    given = parser.parse_args()
    report = Report(given.strict)
    Checker(given.command, given.patience, given.only, report).run()
    print(f"{report.passed} ok, {report.failed} failed, {report.noted} notes")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
