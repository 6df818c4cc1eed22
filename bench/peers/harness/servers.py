"""A private PostgreSQL and a private Redis: on loopback, on ports of their own, in folders that go
with them. They stop with us, however we end: each is watched by a shell that waits for our end."""

import os
import pwd
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

WATCH = """signal=$1; shift; "$@" </dev/null >>log 2>&1 & server=$!
read -r _; kill "-$signal" "$server"; wait "$server" """
READY = "ready to accept connections"  # in both products' words
PATIENCE = 30  # seconds


class Unavailable(Exception):
    """A server is missing, did not start or did not answer; the words say which and why."""


def folder(prefix, account=None):
    """A new folder on a real disk: /tmp may be memory, where a sync costs nothing."""
    path = Path(tempfile.mkdtemp(prefix=prefix, dir="/var/tmp"))
    if account:
        os.chown(path, account.pw_uid, account.pw_gid)
    return path


class Server:
    """A server's process and its folder."""

    def __init__(self, name, account=None):
        self.account = account
        self.folder = folder(f"longshore-peers-{name}-", account)
        self.process = None
        self.port = _free_port()

    def start(self, signal, command):
        """Starts it and waits until it says that it is ready."""
        watch = ["/bin/sh", "-c", WATCH, "watch", signal, *command]
        self.process = subprocess.Popen(watch, stdin=subprocess.PIPE, **self.as_account())
        deadline = time.monotonic() + PATIENCE
        while READY not in self.log().lower():
            if self.process.poll() is not None or time.monotonic() > deadline:
                log = self.log()
                self.stop()
                raise Unavailable(f"{command[0]} did not start: {log[-300:]}")
            time.sleep(0.05)

    def as_account(self):
        """How a process of this server is started: PostgreSQL refuses root."""
        options = {"cwd": self.folder, "start_new_session": True}
        if self.account:
            options |= {"user": self.account.pw_uid, "group": self.account.pw_gid,
                        "extra_groups": []}
        return options

    def log(self):
        path = self.folder / "log"
        return path.read_text(errors="replace")[-2000:] if path.is_file() else ""

    def stop(self):
        """Stops it and removes its folder."""
        if self.process:
            self.process.stdin.close()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Postgres(Server):
    """PostgreSQL as its package configures it: fsync and synchronous_commit are on."""

    def __init__(self):
        server = _program("postgres")
        super().__init__("postgres", pwd.getpwnam("nobody") if os.geteuid() == 0 else None)
        self.password = secrets.token_hex(16)
        self._init()
        self.start("INT", [
            server, "-D", "data", "-p", str(self.port),
            "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self.folder}",
        ])

    def _init(self):
        secret = self.folder / "secret"
        secret.write_text(self.password)
        secret.chmod(0o644)
        command = [_program("initdb"), "-D", "data", "-U", "longshore", "--pwfile=secret",
                   "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8"]
        done = subprocess.run(command, capture_output=True, text=True, **self.as_account())
        secret.unlink()
        if done.returncode != 0:
            self.stop()
            raise Unavailable(f"initdb failed: {done.stderr.strip()[-300:]}")

    def url(self, database):
        return f"postgres://longshore:{self.password}@127.0.0.1:{self.port}/{database}"

    def sql(self, *statements, database="postgres"):
        """Runs statements, each by itself, and returns what the last one answers."""
        command = [_program("psql"), "--no-psqlrc", "-qAt", self.url(database)]
        command += ["-v", "ON_ERROR_STOP=1"]
        for statement in statements:
            command += ["-c", statement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"psql failed: {done.stderr.strip()[-300:]}")
        return (done.stdout.strip().splitlines() or [""])[-1]

    def version(self):
        return self.sql("SHOW server_version").split()[0]


class Redis(Server):
    """Redis without snapshots and without a log: the fastest it can be, and nothing is kept."""

    def __init__(self):
        server = _program("redis-server")
        super().__init__("redis")
        self.start("TERM", [
            server, "--port", str(self.port), "--bind", "127.0.0.1",
            "--save", "", "--appendonly", "no", "--dir", str(self.folder),
        ])

    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def flush(self):
        """Forgets everything."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
            connection.sendall(b"FLUSHALL\r\n")
            connection.recv(64)

    def version(self):
        said = subprocess.run([_program("redis-server"), "--version"], capture_output=True,
                              text=True, check=True).stdout
        return re.search(r"v=(\S+)", said)[1]


def _program(name):
    """A server's program: Debian keeps PostgreSQL's away from PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"),
                    key=lambda path: int(path.parent.parent.name))
    if debian:
        return str(debian[-1])
    path = shutil.which(name)
    if path is None:
        package = "redis-server" if name == "redis-server" else "postgresql"
        raise Unavailable(f"{name} is missing: install the Debian package {package}")
    return path


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
