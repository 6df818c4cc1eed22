"""Who is compared: one entry per product and store, with the settings that it runs with."""

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent

POSTGRES, SQLITE, REDIS = "PostgreSQL", "SQLite", "Redis"
OURS, LIMIT, PEER = "ours", "limit", "peer"


@dataclass(frozen=True)
class Product:
    """One line of the table."""

    name: str  # what --only takes
    title: str
    store: str
    tool: str  # what installs and starts it: node, python, rust or ours
    program: str  # a file, a Cargo package or an option of our own driver
    package: str  # the package with the version to show
    settings: str
    role: str = PEER
    durable: bool = True

    def version(self):
        """The version that is pinned, and so the one that is installed."""
        return {"node": _npm, "python": _pip, "rust": _cargo, "ours": _our}[self.tool](self)


def _npm(product):
    return json.loads((HERE / "node/package.json").read_text())["dependencies"][product.package]


def _pip(product):
    pins = (HERE / "python/requirements.txt").read_text()
    return re.search(rf"^{re.escape(product.package)}==(\S+)$", pins, re.MULTILINE)[1]


def _cargo(product):
    manifest = tomllib.loads((HERE / "rust" / product.program / "Cargo.toml").read_text())
    pin = manifest["dependencies"][product.package]
    return (pin["version"] if isinstance(pin, dict) else pin).removeprefix("=")


def _our(_):
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


PRODUCTS = [
    Product("limit-postgres", "the limit: our statements in a loop", POSTGRES, "ours", "--limit",
            "", "2 connections, 500 per claim", role=LIMIT),
    Product("ours-postgres", "Longshore", POSTGRES, "ours", "",
            "", "256 slots", role=OURS),
    Product("graphile-worker", "graphile-worker (Node)", POSTGRES, "node", "graphile-worker.cjs",
            "graphile-worker", "100 at a time, local queue 2000, batched completion"),
    Product("graphile-worker-rust", "graphile_worker (Rust)", POSTGRES, "rust", "graphile-worker",
            "graphile_worker", "500 at a time, local queue 5000, completion every 5 ms"),
    Product("pg-boss", "pg-boss", POSTGRES, "node", "pg-boss.cjs",
            "pg-boss", "4 loops of fetch and complete, 1000 each"),
    Product("river-postgres", "River (Rust)", POSTGRES, "rust", "river",
            "riverqueue", "1000 at a time, a fetch each millisecond"),
    Product("apalis-postgres", "apalis", POSTGRES, "rust", "apalis-postgres",
            "apalis-postgres", "batches of 1000"),
    Product("awa", "awa", POSTGRES, "rust", "awa",
            "awa-worker", "1024 at a time, no deadlines (its short path)"),
    Product("procrastinate", "Procrastinate", POSTGRES, "python", "procrastinate_peer.py",
            "procrastinate", "50 at a time"),
    Product("limit-sqlite", "the limit: our statements in a loop", SQLITE, "ours", "--limit",
            "", "WAL, FULL, 500 per claim", role=LIMIT),
    Product("ours-sqlite", "Longshore", SQLITE, "ours", "",
            "", "WAL, FULL, 256 slots", role=OURS),
    Product("river-sqlite", "River (Rust)", SQLITE, "rust", "river",
            "riverqueue", "WAL, FULL, 1000 at a time, a fetch each millisecond"),
    Product("apalis-sqlite", "apalis", SQLITE, "rust", "apalis-sqlite",
            "apalis-sqlite", "WAL, FULL, batches of 500"),
    Product("effectum", "effectum", SQLITE, "rust", "effectum",
            "effectum", "rollback journal, NORMAL, 256 at a time"),
    Product("bullmq", "BullMQ", REDIS, "node", "bullmq.cjs",
            "bullmq", "in memory only, 50 at a time", durable=False),
    Product("dramatiq", "Dramatiq", REDIS, "python", "dramatiq_peer.py",
            "dramatiq", "in memory only, 2 processes of 8 threads, sent one by one", durable=False),
]


def chosen(only):
    """The products that were asked for; all of them if nothing was said."""
    unknown = set(only) - {product.name for product in PRODUCTS}
    if unknown:
        raise SystemExit(f"error: no such product: {', '.join(sorted(unknown))}\n"
                         f"hint: --only takes {', '.join(product.name for product in PRODUCTS)}")
    return [product for product in PRODUCTS if not only or product.name in only]
