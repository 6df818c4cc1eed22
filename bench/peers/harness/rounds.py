"""Runs the products by turns, each run with a store of its own, and collects what they say."""

import os
import shutil
import signal
import subprocess
from dataclasses import dataclass, field

from .catalogue import POSTGRES, REDIS
from .install import Missing
from .servers import Postgres, Redis, Unavailable, folder

# What a run may take beside its processing: start, schema, send.
GRACE = 120


class Failed(Exception):
    """A run that gave no figures; the words say why."""


@dataclass
class Figures:
    """What the runs of one product said."""

    send: list = field(default_factory=list)  # units per second
    process: list = field(default_factory=list)
    wal: list = field(default_factory=list)  # bytes of log per unit, PostgreSQL only
    commits: list = field(default_factory=list)  # per unit, PostgreSQL only
    unfinished: int = 0  # the fewest that a run had processed when its time was up


class Stores:
    """The servers that are needed, started when they are first asked for."""

    def __init__(self):
        self.started = {}

    def server(self, kind):
        if kind not in self.started:
            self.started[kind] = kind()
        return self.started[kind]

    def versions(self):
        named = {Postgres: "PostgreSQL", Redis: "Redis"}
        return [f"{named[kind]} {server.version()}" for kind, server in self.started.items()]

    def stop(self):
        for server in self.started.values():
            server.stop()


def measure(product, command, stores, args, figures):
    """One run in a fresh store; what it says goes into `figures`."""
    if product.store == POSTGRES:
        _on_postgres(command, stores.server(Postgres), args, figures)
    elif product.store == REDIS:
        redis = stores.server(Redis)
        redis.flush()
        _take(_run(command, redis.url(), args), args, figures)
    else:
        _on_sqlite(command, args, figures)


def _on_postgres(command, postgres, args, figures):
    # A checkpoint first, so that this run does not pay for the previous run's writes.
    postgres.sql("DROP DATABASE IF EXISTS peer WITH (FORCE)", "CREATE DATABASE peer", "CHECKPOINT")
    before = postgres.sql("SELECT pg_current_wal_insert_lsn()")
    _take(_run(command, postgres.url("peer"), args), args, figures)
    written = postgres.sql(f"SELECT pg_current_wal_insert_lsn() - '{before}'::pg_lsn")
    commits = postgres.sql("SELECT xact_commit FROM pg_stat_database WHERE datname = 'peer'")
    figures.wal.append(int(written) / args.n)
    figures.commits.append(int(commits) / args.n)


def _on_sqlite(command, args, figures):
    place = folder("longshore-peers-sqlite-")
    try:
        os.sync()
        _take(_run(command, str(place / "peer.db"), args), args, figures)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _run(command, store, args):
    """Runs a product's program to its end, which comes in any case, and returns its output."""
    env = os.environ | {"STORE": store, "UNITS": str(args.n), "LIMIT": str(args.limit)}
    bound = args.limit + GRACE
    # `timeout` as well: it ends the run if this process is killed.
    command = ["timeout", "--signal=KILL", str(bound + 10), *command]
    process = subprocess.Popen(command, env=env, text=True, start_new_session=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    try:
        said, complained = process.communicate(timeout=bound)
    except subprocess.TimeoutExpired:
        raise Failed(f"not at its end after {bound} seconds") from None
    finally:
        _end(process)
    if process.returncode != 0:
        last = " / ".join((complained or said).strip().splitlines()[-3:])
        raise Failed(f"ended with {process.returncode}: {last}")
    return said


def _end(process):
    """Ends whatever a program has left running: it has a process group of its own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _take(said, args, figures):
    """Reads `send UNITS SECONDS` and `process UNITS SECONDS`."""
    words = [line.split() for line in said.splitlines()]
    lines = {word[0]: (int(word[1]), float(word[2])) for word in words if len(word) == 3}
    if lines.keys() != {"send", "process"}:
        raise Failed(f"it said: {said.strip()[-200:]!r}")
    (sent, sending), (done, processing) = lines["send"], lines["process"]
    if sent != args.n or (done != args.n and processing < args.limit) or done == 0:
        raise Failed(f"{sent} sent and {done} processed of {args.n}")
    figures.send.append(sent / sending)
    figures.process.append(done / processing)
    if done < args.n:
        figures.unfinished = min(figures.unfinished or done, done)


def conduct(products, toolbox, stores, args):
    """All rounds. Returns the figures and the reasons of those without, both by product."""
    figures, reasons, commands = {}, {}, {}
    for product in products:
        try:
            commands[product] = toolbox.command(product)
        except Missing as reason:
            reasons[product] = str(reason)
    for round_ in range(args.rounds):
        # Another one begins each round, so that none is always behind the same neighbour.
        turn = round_ % max(1, len(products))
        for product in products[turn:] + products[:turn]:
            if product in reasons:
                continue
            said = figures.setdefault(product, Figures())
            try:
                measure(product, commands[product], stores, args, said)
                print(f"round {round_ + 1} of {args.rounds}  {product.name:<22}"
                      f"{said.send[-1]:>12,.0f} sent/s {said.process[-1]:>12,.0f} processed/s",
                      flush=True)
            except (Failed, Unavailable) as reason:
                reasons[product] = str(reason)
                print(f"round {round_ + 1} of {args.rounds}  {product.name:<22}  {reason}",
                      flush=True)
    return {p: f for p, f in figures.items() if p not in reasons}, reasons
