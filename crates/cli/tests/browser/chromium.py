"""Drives a headless Chromium by its DevTools protocol, with nothing but Python's own library.

One browser, one page, one WebSocket. What a page complains of in its console is gathered.
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
SOON = 60.0


class Broken(Exception):
    """The page did not come to what was waited for."""


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
                pages = [one for one in json.load(answer) if one["type"] == "page"]
            self.line = Line("127.0.0.1", port, pages[0]["webSocketDebuggerUrl"].split(str(port), 1)[1])
            for domain in ["Page", "Runtime", "Log"]:
                self.say(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _port(self):
        path = os.path.join(self.folder, "DevToolsActivePort")
        end = time.monotonic() + SOON
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise Broken(f"chromium ended with {self.process.returncode}")
            try:
                with open(path) as file:
                    lines = file.read().split("\n")
                if len(lines) > 1:
                    return int(lines[0])
            except FileNotFoundError:
                pass
            time.sleep(0.05)
        raise Broken("chromium does not listen")

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def say(self, method, **params):
        """Asks the browser for something, and returns its answer."""
        self.number += 1
        number = self.number
        self.line.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            told = json.loads(self.line.receive())
            if told.get("id") == number:
                if "error" in told:
                    raise Broken(f"{method}: {told['error']}")
                return told["result"]
            self._hear(told)

    def _hear(self, told):
        method, params = told.get("method"), told.get("params", {})
        if method == "Page.javascriptDialogOpening":
            self.number += 1
            self.line.send(json.dumps({"id": self.number, "method": "Page.handleJavaScriptDialog",
                                       "params": {"accept": True}}))
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(json.dumps(params["entry"]))

    def eval(self, script):
        answer = self.say("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise Broken(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, script, limit=SOON):
        """Waits until a script is true of the page."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            try:
                if self.eval(script):
                    return
            except Broken as broken:
                # While a navigation is in progress the page has no execution context, or no body yet.
                if not any(word in str(broken) for word in ["context", "navigat", "of null"]):
                    raise
            time.sleep(0.05)
        words = self.eval("document.body.innerText")
        raise Broken(f"it never came to: {script}\n{words}")

    def go(self, url):
        self.say("Page.navigate", url=url)
        self.until(f"document.readyState === 'complete' && location.href === {json.dumps(url)}")

    def press(self, words):
        """Presses the button with these words on it."""
        find = f"[...document.querySelectorAll('button')].find(b => b.textContent.trim() === {json.dumps(words)})"
        self.until(f"!!({find})")
        self.eval(f"({find}).click()")

    def screen(self, width, height, dark=False, phone=False):
        self.say("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.say("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def picture(self, path):
        shot = self.say("Page.captureScreenshot", format="png")
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))


class Line:
    """A WebSocket, as far as DevTools needs one."""

    def __init__(self, host, port, path):
        self.socket = socket.create_connection((host, port), timeout=SOON)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
                             f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
                             "Sec-WebSocket-Version: 13\r\n\r\n").encode())
        self.reader = self.socket.makefile("rb")
        if b" 101 " not in self.reader.readline():
            raise Broken("chromium does not speak WebSocket")
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
        whole = b""
        while True:
            first, second = self._exactly(2)
            length = second & 0x7F
            if length == 126:
                length = struct.unpack("!H", self._exactly(2))[0]
            elif length == 127:
                length = struct.unpack("!Q", self._exactly(8))[0]
            data = self._exactly(length)
            if first & 0x0F == 8:
                raise Broken("chromium hung up")
            if first & 0x0F in (0, 1):
                whole += data
                if first & 0x80:
                    return whole.decode()

    def _exactly(self, count):
        data = self.reader.read(count)
        if len(data) < count:
            raise Broken("chromium went away")
        return data
