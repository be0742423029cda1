"""The world outside the database: a bank that is paid over HTTP, on loopback."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Bank:
    """A bank that remembers what it was told to pay; it answers at once, or never where it is told to hang.

    Attributes:
        payments: what arrived, in order.
        arrived: set whenever something arrives.
    """

    def __init__(self) -> None:
        """Start it on a port of its own."""
        self.payments: list[dict[str, Any]] = []
        self.arrived = threading.Event()
        self._open = threading.Event()
        self._open.set()
        bank = self

        class Counter(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                payment = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                bank.payments.append(payment)
                bank.arrived.set()
                bank._open.wait(timeout=60)
                try:
                    self.send_response(201)
                    self.end_headers()
                except OSError:
                    pass  # whoever paid is gone

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Counter)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where to pay."""
        return f"http://127.0.0.1:{self._server.server_port}/payments"

    def hang(self) -> None:
        """Take the next payment and answer nothing."""
        self.arrived.clear()
        self._open.clear()

    def answer(self) -> None:
        """Answer again."""
        self._open.set()

    def close(self) -> None:
        """Stop."""
        self.answer()
        self._server.shutdown()
        self._server.server_close()
