"""The channel between supervisor and child, on a real pair of sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from django_relay.messages import Channel

LARGE = "x" * 3_000_000


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    here, there = socket.socketpair()
    with here, there:
        yield Channel(here), Channel(there)


def heard(channel: Channel, count: int) -> list[dict[str, object]]:
    messages: list[dict[str, object]] = []
    while len(messages) < count:
        more = channel.receive(wait=5.0)
        assert more is not None
        messages += more
    return messages


def test_messages_arrive_whole_and_in_order(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    here.send(kind="begun", jobs=[[1, "a", 0.5, None]])
    here.post(kind="ended", tokens=["ä"])
    assert heard(there, 2) == [
        {"kind": "begun", "jobs": [[1, "a", 0.5, None]]},
        {"kind": "ended", "tokens": ["ä"]},
    ]


def test_who_posts_waits_for_nobody_and_the_rest_goes_later(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    here.post(kind="one", text=LARGE)
    here.post(kind="two")
    assert here.clogged
    flushing = threading.Event()

    def flush() -> None:
        while not flushing.is_set():
            here.flush()

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        assert [message["kind"] for message in heard(there, 2)] == ["one", "two"]
    finally:
        flushing.set()
        thread.join()
    assert not here.clogged


def test_who_sends_waits_until_the_other_side_has_read(ends: tuple[Channel, Channel]) -> None:
    here, there = ends
    thread = threading.Thread(target=lambda: here.send(kind="one", text=LARGE))
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    assert heard(there, 1)[0]["text"] == LARGE
    thread.join(5.0)
    assert not thread.is_alive()


def test_where_the_other_side_has_gone_sending_fails_and_posting_is_quiet(
    ends: tuple[Channel, Channel],
) -> None:
    here, there = ends
    there.close()
    with pytest.raises(BrokenPipeError):
        here.send(kind="one")
    here.post(kind="two")
    assert here.receive() is None


def test_on_an_end_that_is_closed_sending_fails_and_posting_is_quiet(
    ends: tuple[Channel, Channel],
) -> None:
    here, _ = ends
    here.close()
    with pytest.raises(OSError, match="descriptor"):
        here.send(kind="one")
    here.post(kind="two")
