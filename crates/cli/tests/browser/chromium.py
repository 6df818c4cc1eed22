"""Drives a headless Chromium over its DevTools protocol, with only Python's standard library.

One browser, one page, one WebSocket. Errors and warnings of the page's console are collected in `complaints`.
"""

import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
    "--remote-debugging-port=0",
]
TIMEOUT = 60.0


class BrowserError(Exception):
    """The browser failed, or the page did not reach an expected state in time."""


class Chromium:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="chromium-")
        command = ["chromium", *FLAGS, f"--user-data-dir={self.folder}", "about:blank"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.complaints = []
        self.number = 0
        try:
            port = self._port()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
                pages = [target for target in json.load(answer) if target["type"] == "page"]
            self.websocket = WebSocket("127.0.0.1", port, pages[0]["webSocketDebuggerUrl"].split(str(port), 1)[1])
            for domain in ["Page", "Runtime", "Log"]:
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _port(self):
        path = os.path.join(self.folder, "DevToolsActivePort")
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise BrowserError(f"chromium ended with {self.process.returncode}")
            try:
                with open(path) as file:
                    lines = file.read().split("\n")
                if len(lines) > 1:
                    return int(lines[0])
            except FileNotFoundError:
                pass
            time.sleep(0.05)
        raise BrowserError("chromium does not listen")

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, **params):
        """Calls a DevTools method and returns its result."""
        self.number += 1
        number = self.number
        self.websocket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self.websocket.receive())
            if message.get("id") == number:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']}")
                return message["result"]
            self._handle_event(message)

    def _handle_event(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Page.javascriptDialogOpening":
            self.number += 1
            self.websocket.send(json.dumps({"id": self.number, "method": "Page.handleJavaScriptDialog",
                                       "params": {"accept": True}}))
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(json.dumps(params["entry"]))

    def eval(self, script):
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, script, limit=TIMEOUT):
        """Waits until a script evaluates to true on the page."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            try:
                if self.eval(script):
                    return
            except BrowserError as error:
                # While a navigation is in progress the page has no execution context, or no body yet.
                if not any(word in str(error) for word in ["context", "navigat", "of null"]):
                    raise
            time.sleep(0.05)
        words = self.eval("document.body.innerText")
        raise BrowserError(f"never true: {script}\n{words}")

    def go(self, url, redirected_to=None):
        self.call("Page.navigate", url=url)
        end = json.dumps(redirected_to or url)
        self.until(f"document.readyState === 'complete' && location.href === {end}")

    def press(self, words):
        """Clicks the button with this text."""
        find = f"[...document.querySelectorAll('button')].find(b => b.textContent.trim() === {json.dumps(words)})"
        self.until(f"!!({find})")
        self.eval(f"({find}).click()")

    def screen(self, width, height, dark=False, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.call("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def picture(self, path):
        shot = self.call("Page.captureScreenshot", format="png")
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))


class WebSocket:
    """The part of a WebSocket client that DevTools needs."""

    def __init__(self, host, port, path):
        self.socket = socket.create_connection((host, port), timeout=TIMEOUT)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
                             f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
                             "Sec-WebSocket-Version: 13\r\n\r\n").encode())
        self.reader = self.socket.makefile("rb")
        if b" 101 " not in self.reader.readline():
            raise BrowserError("chromium does not speak WebSocket")
        while self.reader.readline() != b"\r\n":
            pass

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        if len(data) < 126:
            head = struct.pack("!BB", 0x81, 0x80 | len(data))
        elif len(data) < 65536:
            head = struct.pack("!BBH", 0x81, 0x80 | 126, len(data))
        else:
            head = struct.pack("!BBQ", 0x81, 0x80 | 127, len(data))
        self.socket.sendall(head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def receive(self):
        payload = b""
        while True:
            first, second = self._read_exactly(2)
            length = second & 0x7F
            if length == 126:
                length = struct.unpack("!H", self._read_exactly(2))[0]
            elif length == 127:
                length = struct.unpack("!Q", self._read_exactly(8))[0]
            data = self._read_exactly(length)
            if first & 0x0F == 8:
                raise BrowserError("chromium closed the WebSocket")
            if first & 0x0F in (0, 1):
                payload += data
                if first & 0x80:
                    return payload.decode()

    def _read_exactly(self, count):
        data = self.reader.read(count)
        if len(data) < count:
            raise BrowserError("chromium closed the connection")
        return data
