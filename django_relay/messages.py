"""What supervisor and child say to each other: one JSON object a line over a socket pair.

A message has a ``kind``. Child to supervisor: ``ready``; ``begun`` (handlers start: for each the
job, token, start on the monotonic clock, budget); ``ended`` (tokens it no longer holds); ``alive``
(each second, and whether it is idle); ``more`` (more is ready than it took, of jobs that run beside
others or alone, or it was woken and has no room: wake a sibling or a lane, none of those tried);
``lane`` (it has taken a job that runs alone); ``spent`` (it has run its share and finishes);
``reload``.
Supervisor to child: ``plan``; ``wake`` (and who was woken for the same); ``beat`` (it is not
frozen); ``lanes`` (whether it may take a job that runs alone); ``renewed`` (what a renewal sent at
this boot time found: tokens kept, asked to stop, gone); ``finish`` (grace in seconds).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import socket
import threading
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]

#: What reading or obeying a message raises that none of ours has written.
NONSENSE = (KeyError, TypeError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a child is told when it starts. Durations are in seconds; ``queues`` None means any.

    A child that is a ``lane`` runs nothing but jobs that have cost a process, one at a time.
    """

    worker: str
    backend: str
    database: str
    queues: list[str] | None
    slots: int
    async_slots: int
    lane: bool
    prefetch: int | None
    lease: float
    poll: float
    max_jobs: int | None
    reload: bool
    pooled: bool
    notify: bool
    patience: float
    verbosity: int


class Channel:
    """One end of the socket pair. Sending is thread-safe; one thread receives."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._incoming = b""
        self._outgoing = b""

    def fileno(self) -> int:
        """Return the file descriptor, for a selector."""
        return self._sock.fileno()

    def send(self, **message: Any) -> None:
        """Send, and wait while the other side reads nothing: it may be frozen for a moment.

        Raises OSError when it has gone.
        """
        with self._lock:
            self._outgoing += _line(message)
        while not self._push():
            _poll(self._sock, select.POLLOUT, 0.2)

    def post(self, **message: Any) -> None:
        """Send without waiting, whatever the other side does; what does not fit goes later."""
        with self._lock:
            self._outgoing += _line(message)
        self.flush()

    def flush(self) -> None:
        """Send what an earlier ``post`` could not."""
        with contextlib.suppress(OSError):
            self._push()

    def _push(self) -> bool:
        """Send as much as goes; return whether that was all."""
        with self._lock, contextlib.suppress(BlockingIOError, InterruptedError):
            while self._outgoing:
                self._outgoing = self._outgoing[_send_now(self._sock, self._outgoing) :]
        return not self._outgoing

    @property
    def clogged(self) -> bool:
        """Whether the other side has stopped reading."""
        return len(self._outgoing) > 65536

    def receive(self, *, wait: float = 0.0) -> list[Message] | None:
        """Return the messages that have arrived, or None when the other side has closed.

        ``wait``: how many seconds to wait for the first bytes.
        """
        if wait:
            _poll(self._sock, select.POLLIN, wait)
        try:
            data = self._sock.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        *lines, self._incoming = (self._incoming + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Close this end; not while another thread sends, whose bytes would go to who is given the
        descriptor next."""
        with self._lock, contextlib.suppress(OSError):
            self._sock.close()


_encode = json.JSONEncoder(separators=(",", ":")).encode


def _line(message: Message) -> bytes:
    return _encode(message).encode() + b"\n"


# Python's own `send` gives up the interpreter's lock for the call. A slot would report its next job
# and get the lock back only when no other slot's handler computes: at four slots a third of a
# millisecond a job. What cannot wait need not give it up.
_send = ctypes.PyDLL(None, use_errno=True).send
_send.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
_send.restype = ctypes.c_ssize_t
_AT_ONCE = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)


def _send_now(sock: socket.socket, data: bytes) -> int:
    """Return how many bytes went; raise OSError where none could go, for now or for good."""
    sent: int = _send(sock.fileno(), data, len(data), _AT_ONCE)
    if sent < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return sent


def _poll(sock: socket.socket, event: int, seconds: float) -> None:
    poll = select.poll()
    poll.register(sock, event)
    poll.poll(seconds * 1000)
