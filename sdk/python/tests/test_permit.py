"""Permits of a client, on a small HTTP server."""

import json
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from longshore.client import Client, PermitLost


class Pool(BaseHTTPRequestHandler):
    """Grants permits, and renews them as long as `holds`. Counts the requests."""

    def do_POST(self):
        server = self.server
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        verb = self.path.partition("?")[0].rpartition("/")[2]
        server.verbs.append(verb)
        if verb == "extend" and server.away:
            self.close_connection = True
            self.connection.close()
            return
        lost = verb == "extend" and not server.holds
        body = json.dumps({"permit": "7", "fence": 1, "waited_seconds": 0.0, "title": "conflict"}).encode()
        self.send_response(409 if lost else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def eventually(holds):
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end, "never"
        time.sleep(0.01)


class Permits(unittest.TestCase):
    def setUp(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Pool)
        self.server.verbs, self.server.holds, self.server.away = [], True, False
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.client = Client(f"http://127.0.0.1:{self.server.server_port}")

    def count(self, verb):
        return self.server.verbs.count(verb)

    def test_a_lease_is_renewed_while_the_block_runs_and_not_after(self):
        with self.client.permit("p", ttl=0.3) as permit:
            eventually(lambda: self.count("extend") >= 4)
            permit.check()
        renewals = self.count("extend")
        self.assertEqual(self.server.verbs[-1], "release")
        time.sleep(0.3)
        self.assertEqual(self.count("extend"), renewals)

    def test_a_lost_permit_is_raised_at_the_end_of_the_block_and_released(self):
        with self.assertRaises(PermitLost):
            with self.client.permit("p", ttl=0.3) as permit:
                self.server.holds = False
                eventually(lambda: permit.lost)
                self.assertRaises(PermitLost, permit.check)
                self.assertRaises(PermitLost, permit.extend)
        self.assertEqual(self.server.verbs[-1], "release")

    def test_a_permit_that_the_server_has_revoked_is_lost_at_once(self):
        with self.assertRaises(PermitLost):
            with self.client.permit("p", ttl=600) as permit:
                self.server.holds = False
                self.assertRaises(PermitLost, permit.extend)
                self.assertTrue(permit.lost)
                self.server.holds = True
                self.assertRaises(PermitLost, permit.check)

    def test_a_lease_that_could_not_be_renewed_in_time_is_lost(self):
        with self.assertRaises(PermitLost):
            with self.client.permit("p", ttl=0.3) as permit:
                self.server.away = True
                eventually(lambda: permit.lost)
        self.assertEqual(self.server.verbs[-1], "release")

    def test_a_lease_that_the_server_kept_through_an_outage_is_not_lost(self):
        with self.client.permit("p", ttl=0.3) as permit:
            self.server.away = True
            eventually(lambda: permit.lost)
            self.server.away = False
            permit.check()

    def test_an_error_of_the_block_is_not_hidden_by_a_lost_permit(self):
        with self.assertRaises(ZeroDivisionError):
            with self.client.permit("p", ttl=0.3) as permit:
                self.server.holds = False
                eventually(lambda: permit.lost)
                1 / 0
        self.assertEqual(self.server.verbs[-1], "release")


if __name__ == "__main__":
    unittest.main()
