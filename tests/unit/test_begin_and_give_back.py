"""When a child may begin a job, and what it gives back: nothing runs under a lease nobody keeps."""

from __future__ import annotations

from django_relay import outcomes
from django_relay.context import boot_time
from django_relay.hands import Hands
from django_relay.outcomes import Verb
from django_relay.transitions import Claim
from tests.process.waiting import wait_until

from .test_hands import given, job, plan, taken


def test_a_child_claims_nothing_while_its_supervisor_is_not_heard() -> None:
    hands = Hands(plan(lease=0.3), lambda path: False)
    wait_until(lambda: hands.wanted() == (0, False), 5, what="it wants nothing")
    hands.beat()
    assert hands.wanted() == (2, False)


def test_a_job_begins_under_no_lease_that_is_about_to_end() -> None:
    for age, begins in ((0.0, 1), (21.0, 0)):  # of a lease of 30 seconds
        hands = Hands(plan(), lambda path: True)
        claim = Claim((job(),), left=False, suspects=False)
        hands.add(claim, asked=boot_time() - age, wanted=2, alone=False, pasts={})
        assert len(hands.take_all()) == begins


def test_nothing_begins_after_the_first_signal() -> None:
    hands = Hands(plan(), lambda path: True)
    given(hands, job())
    hands.finish(60.0)
    assert hands.take_all() == []


def test_what_was_given_back_after_the_grace_stays_so_although_its_handler_succeeds() -> None:
    hands = Hands(plan(), lambda path: False)
    given(hands, job())
    hand = taken(hands)
    hands.finish(0.0)
    assert hands.wait() == [hand]
    hands.present(hand, outcomes.succeeded("1"))
    assert hand.outcome is not None
    assert hand.outcome.verb is Verb.RELEASE
    assert not hands._to_send()
