"""A client of `longshore serve`: sends units and waits for them, watches batches, holds permits, reads replies.

    from longshore.client import Client

    client = Client("http://127.0.0.1:7717", token="lsh_…")
    unit = client.submit("greet", {"name": "Ada"}, key="order-7")
    print(client.wait(unit)["result"])

Uses only Python's standard library. One connection per request, so threads may share a client.
"""

import itertools
import json
import math
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from contextlib import contextmanager

__all__ = ["Client", "PermitLost", "Problem", "ReplyQueue"]

# Time limit of a request that does not wait for a unit.
_PATIENCE = 60.0
# The longest that one request waits for a unit's end; then the client sends the next one.
_WAIT = 60


class Problem(Exception):
    """An error response: `status`, `kind` as `not-found`, and the whole response as `body`."""

    def __init__(self, status, body):
        self.status = status
        self.body = body
        self.kind = str(body.get("type", "")).rpartition(":")[2]
        super().__init__(f"{status}: {body.get('detail') or body.get('title') or 'no reason was given'}")


class PermitLost(Exception):
    """The lease of a permit ended while its holder worked: another client may hold the permit now."""


class Client:
    """A server and the client's token."""

    def __init__(self, url="http://127.0.0.1:7717", token=None, cafile=None):
        self._base = url.rstrip("/") + "/api/v1"
        self._token = token
        self._tls = ssl.create_default_context(cafile=cafile) if url.startswith("https:") else None

    def submit(self, kind, payload=None, *, key=None, room=None, **more):
        """Sends a unit and returns its id. A unit with the same `key` is sent once. `more` has further
        fields of a unit: `queue`, `priority`, `not_before`, `deadline`, `after` and so on. Waits up to `room`
        seconds for room in a full queue."""
        unit = {"kind": kind, "payload": payload, **more}
        headers = {"Idempotency-Key": key or str(uuid.uuid4())}
        return self._ask("POST", "/units", unit, {"room": room}, headers, patience=room)["unit"]

    def submit_many(self, units, *, key=None, room=None):
        """Sends many units, each a dict with its `kind` and `payload`, as a stream, and returns how many
        were `created` and how many `existing`. With a `key` the same stream may be sent again."""
        body = (json.dumps(unit).encode() + b"\n" for unit in units)
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key or str(uuid.uuid4())}
        return self._ask("POST", "/units/stream", body, {"room": room}, headers, patience=3_600)

    def unit(self, unit):
        """The current state of a unit."""
        return self._ask("GET", f"/units/{_name(unit)}")

    def wait(self, unit, limit=None):
        """Waits until a unit has ended, and returns it. `TimeoutError` if it has not after `limit` seconds."""
        end = None if limit is None else time.monotonic() + limit
        while True:
            left = _WAIT if end is None else max(0, min(_WAIT, end - time.monotonic()))
            found = self._ask("GET", f"/units/{_name(unit)}", query={"wait": math.ceil(left)}, patience=left)
            if found["state"] in ("done", "failed", "cancelled"):
                return found
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"unit {unit} is {found['state']} after {limit} s")

    def cancel(self, unit):
        """Cancels a waiting unit; asks a running one to stop."""
        return self._ask("POST", f"/units/{_name(unit)}/cancel")

    def retry(self, unit):
        """Retries a failed or cancelled unit."""
        return self._ask("POST", f"/units/{_name(unit)}/retry")

    def send_batch(self, batch, units, *, chunk=1_000, room=None, **more):
        """Sends a batch of units, each a dict with its `kind` and `payload`, and returns it. Call it
        again with the same units after a failure, and it resumes at the batch's position: no unit is
        lost or sent twice. `more` has further fields of a batch: `type`, `notes`, `threshold` and so on."""
        found = self._ask("POST", "/batches", {"id": batch, **more})["batch"]
        if found["sealed"]:
            return found
        at = int(found["cursor"] or 0)
        units = itertools.islice(iter(units), at, None)
        headers = {"Content-Type": "application/x-ndjson"}
        while part := list(itertools.islice(units, chunk)):
            body = b"".join(json.dumps(unit).encode() + b"\n" for unit in part)
            query = {"cursor": at or None, "next": at + len(part), "room": room}
            self._ask("POST", f"/batches/{_name(batch)}/units", body, query, headers, patience=room)
            at += len(part)
        return self._ask("POST", f"/batches/{_name(batch)}/seal")

    def batch(self, batch):
        """A batch with its progress."""
        return self._ask("GET", f"/batches/{_name(batch)}")

    def operate(self, batch, verb):
        """Performs `pause`, `resume`, `retry` (of its failures) or `cancel` on a batch."""
        return self._ask("POST", f"/batches/{_name(batch)}/{_name(verb)}")

    def all(self, path, **query):
        """All items of a list, as `all("/units", state="failed")`, page by page."""
        after = None
        while True:
            page = self._ask("GET", path, query={**query, "after": after})
            yield from page["items"]
            after = page["next"]
            if after is None:
                return

    @contextmanager
    def permit(self, pool, *, wait=60, ttl=60, owner=None, weight=1):
        """Holds a permit of a bounded pool while the block runs, and always releases it. A thread
        renews its lease of `ttl` seconds. If the lease is lost all the same, the end of the block
        raises `PermitLost`; long work calls `check()` of the permit, which raises it earlier. The
        permit also has `lost` and `fence`."""
        body = {"id": str(uuid.uuid4()), "ttl_seconds": ttl, "weight": weight, "owner": owner}
        path = f"/pools/{_name(pool)}/permits"
        done = threading.Event()
        try:
            asked = time.monotonic()
            grant = self._ask("POST", path, body, {"wait": wait}, patience=wait)
            permit = _Permit(self, path, grant, ttl, asked)
            threading.Thread(target=permit._renew, args=(done,), name="longshore-permit", daemon=True).start()
            yield permit
            permit.check()
        finally:
            done.set()
            # Also if the response was lost: the permit may have been granted.
            try:
                self._ask("POST", f"{path}/{body['id']}/release")
            except (OSError, Problem):
                pass  # Its lease ends by itself.

    def open_reply_queue(self, queue=None, *, ttl=None):
        """Opens a queue for the replies to AI requests, as a `ReplyQueue`. The server closes it after `ttl`
        seconds without a read; a `with` block closes it at its end."""
        body = {"queue": queue, "ttl_seconds": ttl}
        body = {name: value for name, value in body.items() if value is not None}
        return ReplyQueue(self, self._ask("POST", "/reply-queues", body))

    def _ask(self, method, path, body=None, query=None, headers=None, patience=None, limit=None):
        query = {name: value for name, value in (query or {}).items() if value is not None}
        url = self._base + path + ("?" + urllib.parse.urlencode(query) if query else "")
        headers = dict(headers or {})
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        request = urllib.request.Request(url, data=data, method=method, headers=headers)
        limit = limit or _PATIENCE + (patience or 0)
        try:
            with urllib.request.urlopen(request, timeout=limit, context=self._tls) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise Problem(error.code, _read(error)) from None


class ReplyQueue:
    """An open reply queue: `queue` is its name, `address` the field `reply_queue` of requests."""

    def __init__(self, client, opened):
        self._client = client
        self.queue, self.address = opened["queue"], opened["reply_queue"]
        self._path = f"/reply-queues/{_name(self.queue)}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.close()
        except (OSError, Problem):
            pass  # The server closes it after its TTL.

    def read(self, *, wait=0, limit=100):
        """Up to `limit` replies and parts of replies, oldest first, each a dict with its `id` and `reply`.
        Waits up to `wait` seconds for the first one. They are returned again until they are acknowledged."""
        query = {"wait": math.ceil(wait), "limit": limit}
        return self._client._ask("GET", f"{self._path}/replies", query=query, patience=wait)["items"]

    def acknowledge(self, *ids):
        """Acknowledges replies by their ids, and returns how many were waiting for it."""
        return self._client._ask("POST", f"{self._path}/ack", {"ids": ids})["acknowledged"]

    def replies(self, *, wait=60):
        """Yields replies and parts of replies, until none arrives for `wait` seconds. Each is acknowledged
        when the next one is asked for: one that was being processed in a crash is read again."""
        while found := self.read(wait=wait):
            for one in found:
                yield one["reply"]
                self.acknowledge(one["id"])

    def close(self):
        """Closes the queue. Replies that are not acknowledged are cancelled."""
        self._client._ask("POST", f"{self._path}/close")


class _Permit:
    def __init__(self, client, path, grant, ttl, asked):
        self._client, self._path, self._ttl = client, path, ttl
        self.id, self.fence = grant["permit"], grant["fence"]
        # Whether the server said so.
        self._lost = False
        # The lease lasts at least until then, on this machine's clock.
        self._until = asked + grant["waited_seconds"] + ttl

    @property
    def lost(self):
        """Whether another client may hold the permit: the lease was lost, or could not be renewed in time."""
        return self._lost or time.monotonic() >= self._until

    def check(self):
        """Raises `PermitLost` if the permit is lost."""
        if self.lost:
            try:
                self.extend()  # Only the server knows whether an overdue lease was lost.
            except (OSError, Problem) as error:
                raise PermitLost(f"the lease of permit {self.id} ended, and cannot be renewed") from error

    def extend(self, ttl=None):
        """Renews the lease at once, for `ttl` seconds from now on. Raises `PermitLost` if it is lost."""
        if self._lost:
            raise PermitLost(f"permit {self.id} is lost")
        ttl, asked = ttl or self._ttl, time.monotonic()
        try:
            path, limit = f"{self._path}/{self.id}/extend", max(1, ttl / 3)
            self._client._ask("POST", path, {"ttl_seconds": ttl}, limit=limit)
        except Problem as problem:
            if problem.status != 409:
                raise
            self._lost = True
            raise PermitLost(f"permit {self.id} is lost") from problem
        self._ttl, self._until = ttl, asked + ttl

    def _renew(self, done):
        """Renews the lease until `done`, three times as often as necessary."""
        pause = self._ttl / 3
        while not done.wait(pause):
            try:
                self.extend()
                pause = self._ttl / 3
            except PermitLost:
                return
            except (OSError, Problem):
                pause = min(1, self._ttl / 10)


def _name(text):
    return urllib.parse.quote(str(text), safe="")


def _read(error):
    try:
        body = json.load(error)
        return body if isinstance(body, dict) else {}
    except ValueError:
        return {}
