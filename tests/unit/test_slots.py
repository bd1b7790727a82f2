"""Which slot a job gets whose task nobody has imported yet."""

from __future__ import annotations

import asyncio
import socket

import pytest

from django_relay import execution
from django_relay.hand import Hand
from django_relay.hands import Hands
from django_relay.messages import Channel
from django_relay.slots import Slots

from .test_hands import given, job, plan, taken


def test_jobs_behind_the_first_of_an_async_task_begin_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: set[str] = set()
    spawned: list[Hand] = []
    ours, theirs = map(Channel, socket.socketpair())
    hands = Hands(plan(slots=4, async_slots=4), found.__contains__)
    slots = Slots(plan(), hands, ours)
    monkeypatch.setattr(execution, "find", found.add)
    monkeypatch.setattr(execution, "is_async", found.__contains__)
    monkeypatch.setattr(slots, "_spawn", spawned.append)
    given(hands, job(), job(), job())
    first = taken(hands)
    slots._run(first)
    slots._loop.run_until_complete(asyncio.sleep(0.01))
    slots._loop.close()
    assert spawned[0] is first
    assert len(spawned) == 3
    ours.close()
    theirs.close()
