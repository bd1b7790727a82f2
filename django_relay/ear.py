"""The child's ear for its supervisor: a thread that obeys, and says that the process is alive."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from .hands import Hands
from .messages import Channel, Plan
from .reloading import Code

if TYPE_CHECKING:
    from .child import Bookkeeper

logger = logging.getLogger("django_relay.worker")


class Ear(threading.Thread):
    """Listens to the supervisor, and says each second that this process is alive."""

    def __init__(self, plan: Plan, channel: Channel, hands: Hands, bookkeeper: Bookkeeper) -> None:
        super().__init__(name="relay-ear", daemon=True)
        self._code = Code() if plan.reload else None
        self._said_at, self._said_idle = -1.0, False
        self._channel = channel
        self._hands = hands
        self._bookkeeper = bookkeeper

    def run(self) -> None:
        """Obey until the supervisor's end closes, then end this process without settling."""
        try:
            while (messages := self._channel.receive(wait=0.2)) is not None:
                self.obey(messages)
                self._say_alive()
                self._bookkeeper.say_unsaid()
                self._channel.flush()
                self._bookkeeper.connection.unstick()
        finally:
            os._exit(0)

    def obey(self, messages: list[dict[str, Any]]) -> None:
        """Do what the supervisor says."""
        for message in messages:
            self._obey(message)

    def _say_alive(self) -> None:
        now, idle = time.monotonic(), self._hands.idle
        if now - self._said_at < 1.0 and idle == self._said_idle:
            return
        self._channel.post(kind="alive", idle=idle)
        self._said_at, self._said_idle = now, idle
        if self._code is not None and self._code.changed():
            logger.info("code has changed: this child is replaced")
            self._channel.post(kind="reload")

    def _obey(self, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "wake":
            if not self._hands.wake() and "tried" in message:
                self._channel.post(kind="more", alone=message["alone"], tried=message["tried"])
        elif kind == "beat":
            self._hands.beat()
        elif kind == "lanes":
            self._hands.lanes(open=message["open"])
        elif kind == "renewed":
            self._hands.renewed(
                sent=message["sent"],
                kept=message["kept"],
                stop=message["stop"],
                gone=message["gone"],
            )
        elif kind == "finish":
            self._hands.finish(message["grace"])
