"""Dramatiq on Redis: it has no bulk send, so jobs go one by one; its own command as the worker."""

import os
import subprocess
import sys
import tempfile
import time

from report import LIMIT, UNITS, Clock, chunks, line, setting

PROCESSES = setting("PROCESSES", 2)
THREADS = setting("THREADS", 8)


def send():
    from dramatiq_actor import noop

    clock = Clock()
    for numbers in chunks():
        for i in numbers:
            noop.send(i)
    line("send", UNITS, clock.seconds())


def start_worker():
    sizes = ["--processes", str(PROCESSES), "--threads", str(THREADS)]
    command = [sys.executable, "-m", "dramatiq", "dramatiq_actor", *sizes]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    folder = os.path.dirname(os.path.abspath(__file__))
    return subprocess.Popen(command, cwd=folder, **quiet)


def process(tally, worker):
    """The clock runs from the first jobs on: starting a Python process is not what is measured.
    Those first jobs are counted too, which is in its favour."""

    def done():
        return os.stat(tally).st_size

    started = Clock()
    while done() == 0:
        if worker.poll() is not None or started.seconds() > LIMIT:
            sys.exit("the worker did not start")
        time.sleep(0.001)
    clock = Clock()
    while done() < UNITS and clock.seconds() < LIMIT and worker.poll() is None:
        time.sleep(0.002)
    line("process", done(), clock.seconds())


with tempfile.NamedTemporaryFile() as file:
    os.environ["TALLY"] = file.name
    send()
    worker = start_worker()
    try:
        process(file.name, worker)
    finally:
        worker.terminate()
        worker.wait(30)
