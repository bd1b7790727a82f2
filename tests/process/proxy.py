"""A small TCP proxy before PostgreSQL that can lose answers, fall silent, refuse and cut.

Everything passes until ``hold``: from then on what the server answers on certain connections is
kept back, while what their clients send still arrives. ``cut`` closes those, with all that was kept
back, and lets new ones pass. ``silence`` takes what either end sends, passes nothing on and closes
nothing. Which ones, the application_name of their first packets tells.
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
        self._hushed: bytes | None = None
        self._refused: bytes | None = None
        self._still: set[socket.socket] = set()
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

    def silence(self, name: str, *, again: bool = False) -> int:
        """Pass nothing more on of those clients, in no direction; return how many there are.

        With ``again`` their new connections fall silent as well, as soon as they have logged in.
        """
        self._hushed = name.encode()
        before = len(self._still)
        self._tell(b"s")
        if not again:
            self._hushed = None
        return len(self._still) - before

    def refuse(self, name: str) -> None:
        """Close new connections of those clients at once; none falls silent any more."""
        self._refused, self._hushed = name.encode(), None

    def relent(self) -> None:
        """Let new connections pass; those that fell silent stay so."""
        self._hushed = self._refused = None

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
                elif isinstance(key.fileobj, socket.socket) and self._passes(key.fileobj):
                    self._forward(key.fileobj)

    def _obey(self, order: bytes) -> None:
        if order == b"h":
            return
        if order == b"s":
            for client in self._said.keys() - self._still:
                if _names(self._hushed, self._said[client]):
                    self._hush(client)
            return
        for client in list(self._said):
            if order == b"e" or self._holds(client):
                self._close(client)
        self._held = None

    def _holds(self, client: socket.socket) -> bool:
        return _names(self._held, self._said[client])

    def _passes(self, end: socket.socket) -> bool:
        """Whether an end is open and may speak; another in the same round may have changed that."""
        return end in self._partner and not {end, self._partner[end]} & self._still

    def _hush(self, client: socket.socket) -> None:
        """Have nobody read from either end; both stay open."""
        self._still.add(client)
        for end in (client, self._partner[client]):
            with contextlib.suppress(KeyError):
                self._selector.unregister(end)

    def _stopped(self, client: socket.socket, data: bytes) -> bool:
        """Whether what a client has sent goes no further."""
        if len(self._said[client]) < 1024:
            self._said[client] += data[:1024]
        if _names(self._refused, self._said[client]):
            self._close(client)
            return True
        # Its first query after the login: by a message of type Query or Parse.
        if data[:1] in (b"Q", b"P") and _names(self._hushed, self._said[client]):
            self._hush(client)
            return True
        return False

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
                if source in self._said and self._stopped(source, data):
                    return
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


def _names(name: bytes | None, said: bytes) -> bool:
    return name is not None and name in said
