"""A pool of Python, measured from within: calls that do nothing, one at a time and WIDTH in flight."""

import os
import platform
import signal
import statistics
import sys
import threading
import time
from importlib.metadata import version

from task import nothing

SECONDS = float(os.environ["SECONDS"])
WIDTH = int(os.environ["WIDTH"])
WORKERS = 2


def process_pool_executor():
    from concurrent.futures import ProcessPoolExecutor

    return ProcessPoolExecutor(WORKERS).submit, platform.python_version()


def loky():
    from loky import get_reusable_executor

    return get_reusable_executor(WORKERS).submit, version("loky")


def pebble():
    from pebble import ProcessPool

    return ProcessPool(max_workers=WORKERS).schedule, version("pebble")


def one_at_a_time(submit, seconds):
    """The median in microseconds."""
    times, begun = [], time.perf_counter()
    last = begun
    while last - begun < seconds:
        submit(nothing).result()
        now = time.perf_counter()
        times.append((now - last) * 1e6)
        last = now
    return statistics.median(times) if times else 0


def in_flight(submit, seconds):
    """Calls per second. One thread submits; who is done makes room for the next."""
    room, calls, begun = threading.Semaphore(WIDTH), 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        room.acquire()
        submit(nothing).add_done_callback(lambda _: room.release())
        calls += 1
    for _ in range(WIDTH):
        room.acquire()
    return calls / (time.perf_counter() - begun)


if __name__ == "__main__":
    pools = {"process-pool-executor": process_pool_executor, "loky": loky, "pebble": pebble}
    submit, its_version = pools[sys.argv[1]]()
    print("version", its_version)
    if SECONDS > 0:
        in_flight(submit, SECONDS / 4)
        print("p50", one_at_a_time(submit, SECONDS))
        print("rate", in_flight(submit, SECONDS), flush=True)
    # Shutdown is not measured; some pools take long.
    sys.stdout.flush()
    import multiprocessing

    for child in multiprocessing.active_children():
        # By its number: loky's own processes have no `kill`.
        os.kill(child.pid, signal.SIGKILL)
    os._exit(0)
