"""A small TCP proxy before PostgreSQL that can lose answers and cut connections.

Everything passes until ``hold``: from then on what the server answers on certain connections is
kept back, while what their clients send still arrives. ``cut`` closes those, with all that was kept
back, and lets new ones pass. Which ones, the application_name of their first packets tells.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from types import TracebackType


class Proxy:
    """Forwards a port of its own to another one on this host; use it in a ``with``."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ, None)
        self._ours, theirs = socket.socketpair()
        self._selector.register(theirs, selectors.EVENT_READ, "order")
        self._order = theirs
        self._partner: dict[socket.socket, socket.socket] = {}
        self._said: dict[socket.socket, bytes] = {}
        self._held: bytes | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tell(b"e")
        self._thread.join(10)
        self._ours.close()
        self._order.close()
        self._listening.close()
        self._selector.close()

    def hold(self, name: str) -> None:
        """Keep back what the server answers to clients with this in their application_name."""
        self._held = name.encode()
        self._tell(b"h")

    def cut(self) -> None:
        """Close the connections of those clients, and let new ones pass."""
        self._tell(b"c")

    def _tell(self, order: bytes) -> None:
        self._ours.sendall(order)
        # One byte comes back when it has been done.
        assert self._ours.recv(1) == order

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    self._accept()
                elif key.data == "order":
                    order = self._order.recv(1)
                    self._obey(order)
                    self._order.sendall(order)
                    if order == b"e":
                        return
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._partner:
                    self._forward(key.fileobj)

    def _obey(self, order: bytes) -> None:
        if order == b"h":
            return
        for client in list(self._said):
            if order == b"e" or self._holds(client):
                self._close(client)
        self._held = None

    def _holds(self, client: socket.socket) -> bool:
        return self._held is not None and self._held in self._said[client]

    def _accept(self) -> None:
        client, _ = self._listening.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._behind))
        except OSError:
            client.close()
            return
        self._partner |= {client: server, server: client}
        self._said[client] = b""
        for end in (client, server):
            self._selector.register(end, selectors.EVENT_READ, "data")

    def _forward(self, source: socket.socket) -> None:
        partner = self._partner[source]
        if source not in self._said and self._holds(partner):
            self._selector.unregister(source)
            return
        data = b""
        with contextlib.suppress(OSError):
            data = source.recv(1 << 16)
            if data:
                if source in self._said and len(self._said[source]) < 1024:
                    self._said[source] += data[:1024]
                partner.sendall(data)
                return
        self._close(source)

    def _close(self, end: socket.socket) -> None:
        for each in (end, self._partner.get(end)):
            if each is not None and each in self._partner:
                del self._partner[each]
                self._said.pop(each, None)
                with contextlib.suppress(KeyError):
                    self._selector.unregister(each)
                each.close()
