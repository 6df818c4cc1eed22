"""What every Python peer is told and what it says; bench/peers/run reads the lines."""

import os
import time

CHUNK = 1000
UNITS = int(os.environ.get("UNITS", 20000))
LIMIT = float(os.environ.get("LIMIT", 60))
STORE = os.environ.get("STORE", "")


def setting(name, default):
    """A setting of the peer: the default is the best that was found."""
    return int(os.environ.get(name, default))


def chunks():
    """The numbers of the jobs, in the parts in which they are sent."""
    for start in range(0, UNITS, CHUNK):
        yield range(start, min(start + CHUNK, UNITS))


def line(what, units, seconds):
    """One line for bench/peers/run."""
    print(f"{what} {units} {seconds:.6f}", flush=True)


class Clock:
    """Runs from when it is made."""

    def __init__(self):
        self.start = time.perf_counter()

    def seconds(self):
        return time.perf_counter() - self.start
