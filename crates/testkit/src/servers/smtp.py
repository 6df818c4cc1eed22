"""A mail server for tests: stores messages; the recipient's name selects its behaviour.

    smtp.py FOLDER PORT SECURITY [USER PASSWORD]

SECURITY is none, starttls or tls. Each received message is appended to FOLDER/arrived as a line of JSON. If a
recipient's name starts with one of these words, the server answers with an error:

    refuse  550 to the recipient      defer   451 to the recipient, always
    once    451 the first time        spam    554 to the message itself
    full    552 to the recipient      large   552 to the message itself
    hang    accepts the message and closes the connection without an answer
    linger  accepts the message, and does not answer the QUIT of the connection

Each connection that ends with QUIT adds a line to FOLDER/quit.
"""

import asyncio
import json
import os
import signal
import ssl
import sys
import threading
from email.parser import BytesParser

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

folder, port, security = sys.argv[1], int(sys.argv[2]), sys.argv[3]
known = tuple(sys.argv[4:6])


class Handler:
    seen = set()
    lingering = set()

    async def handle_RCPT(self, server, session, envelope, address, options):
        word = address.split("@")[0].split("-")[0].split("+")[0]
        if word == "refuse":
            return "550 5.1.1 nobody of that name"
        if word == "full":
            return "552 5.2.2 no room in there"
        if word == "defer" or (word == "once" and address not in self.seen):
            self.seen.add(address)
            return "451 4.3.0 not now"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_QUIT(self, server, session, envelope):
        with open(os.path.join(folder, "quit"), "a") as quit:
            quit.write(f"{session.peer[1]}\n")
        if session.peer in self.lingering:
            await asyncio.sleep(600)
        return "221 bye"

    async def handle_DATA(self, server, session, envelope):
        words = {address.split("-")[0].split("@")[0] for address in envelope.rcpt_tos}
        if "spam" in words:
            return "554 5.7.1 we do not like it"
        if "large" in words:
            return "552 5.3.4 message size exceeds limit"
        head = BytesParser().parsebytes(envelope.content)
        line = {
            "id": (head["Message-ID"] or "").strip("<>"),
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "secure": session.ssl is not None or security == "tls",
            "user": session.auth_data.login.decode() if session.auth_data else None,
            "peer": session.peer[1],
            "content": envelope.content.decode("utf-8", "replace"),
        }
        with open(os.path.join(folder, "arrived"), "a") as arrived:
            arrived.write(json.dumps(line) + "\n")
        if "linger" in words:
            self.lingering.add(session.peer)
        if "hang" in words:
            server.transport.close()
            return "250 nobody hears this"
        return "250 kept"


def authenticate(server, session, envelope, mechanism, data):
    right = isinstance(data, LoginPassword) and (data.login.decode(), data.password.decode()) == known
    return AuthResult(success=right, auth_data=data if right else None, handled=right or False)


def main():
    options = {"hostname": "127.0.0.1", "port": port, "enable_SMTPUTF8": True}
    if security != "none":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.path.join(folder, "server.pem"), os.path.join(folder, "server.key"))
        if security == "tls":
            options["ssl_context"] = context
        else:
            options |= {"tls_context": context, "require_starttls": True}
    if known:
        # With implicit TLS, aiosmtpd does not know that the connection is encrypted.
        options |= {"authenticator": authenticate, "auth_required": True}
        options |= {"auth_require_tls": security == "starttls"}
    controller = Controller(Handler(), **options)
    controller.start()
    print("ready for mail", file=sys.stderr, flush=True)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    ended.wait()
    controller.stop()


main()
