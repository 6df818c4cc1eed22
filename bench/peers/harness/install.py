"""Puts the pinned versions into a cache folder outside the repository, and says how each is
started. What is there already is left alone: a change of the pins installs anew."""

import hashlib
import os
import shutil
import subprocess
import sys

from .catalogue import HERE, ROOT


class Missing(Exception):
    """A product could not be installed; the words say why."""


class Toolbox:
    """What was installed, by tool. A failure is remembered, so that it is tried once and told for
    each product that it takes away."""

    def __init__(self, cache, release):
        self.cache = cache
        self.release = release
        self.answers = {}

    def command(self, product):
        """The command that runs a product, installed by now; raises Missing."""
        part = product.program if product.tool == "rust" else product.tool
        if part not in self.answers:
            self.answers[part] = self._try(product)
        if isinstance(self.answers[part], Missing):
            raise self.answers[part]
        return self.answers[part] + self._arguments(product)

    def _try(self, product):
        try:
            return getattr(self, f"_{product.tool}")(product)
        except Missing as reason:
            return reason

    def _arguments(self, product):
        if product.tool in ("node", "python"):
            return [str(HERE / product.tool / product.program)]
        return [product.program] if product.tool == "ours" and product.program else []

    def _node(self, _):
        folder = self.cache / "node"
        pins = [HERE / "node/package.json", HERE / "node/package-lock.json"]
        if not _is_current(folder, pins):
            _empty(folder)
            for pin in pins:
                shutil.copy(pin, folder)
            # Not `ci`: that refuses a lock file without the optional packages of other platforms,
            # and not every registry has them.
            _run("npm", ["install", "--no-save", "--no-fund", "--no-audit"], folder)
            _mark(folder, pins)
        return ["env", f"NODE_PATH={folder / 'node_modules'}",
                str(folder / "node_modules/node/bin/node")]

    def _python(self, _):
        folder, pins = self.cache / "python", [HERE / "python/requirements.txt"]
        python = folder / "bin/python"
        if not _is_current(folder, pins):
            _empty(folder)
            _run(sys.executable, ["-m", "venv", str(folder)], folder)
            _run(str(python), ["-m", "pip", "install", "--quiet", "-r", str(pins[0])], folder)
            _mark(folder, pins)
        return ["env", "PYTHONDONTWRITEBYTECODE=1", str(python)]

    def _rust(self, product):
        # One target folder for all: what two peers share is built once.
        target = self.cache / "rust"
        folder = HERE / "rust" / product.program
        env = {"CARGO_TARGET_DIR": str(target)}
        _run("cargo", ["build", "--release", "--locked", "--quiet"], folder, env)
        return [str(target / "release" / f"peer-{product.program}")]

    def _ours(self, _):
        profile, folder = ("release", "release") if self.release else ("dev", "debug")
        _run("cargo", ["build", "--quiet", "--profile", profile, "-p", "bench-queues"], ROOT)
        target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
        return [f"{target}/{folder}/bench-queues", "peer"]


def _run(program, arguments, folder, env=None):
    """Runs a step of an installation; raises Missing with the last words of one that failed."""
    print(f"installing: {os.path.basename(program)} {' '.join(arguments)}", flush=True)
    path = shutil.which(program)
    if path is None:
        raise Missing(f"{program} is not installed")
    env = os.environ | (env or {})
    # Niced: other work on this machine goes first.
    command = ["nice", "-n", "19", path, *arguments]
    done = subprocess.run(command, cwd=folder, env=env, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise Missing(f"{os.path.basename(program)} failed: {_reason(done.stdout)}")


def _reason(said):
    """The first lines about an error, or the last lines where none says so."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() and "EBADENGINE" not in line]
    return " / ".join(errors[:4] or lines[-4:])[:600]


def _empty(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _digest(pins):
    try:
        return hashlib.sha256(b"".join(pin.read_bytes() for pin in pins)).hexdigest()
    except OSError as error:
        raise Missing(f"no pins: {error}") from error


def _is_current(folder, pins):
    stamp = folder / "installed"
    return stamp.is_file() and stamp.read_text() == _digest(pins)


def _mark(folder, pins):
    (folder / "installed").write_text(_digest(pins))
