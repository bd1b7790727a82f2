"""A claim starts behind what earlier ones have left while that is long to walk over."""

from __future__ import annotations

import pytest

from django_relay import outcomes
from django_relay.transitions import Claim, Frontier
from tests.process.waiting import wait_until

from .stage import Stage, ending


def ids(claim: Claim) -> list[int]:
    return [job.job_id for job in claim.jobs]


def come_so_far(claim: Claim) -> Frontier:
    """The frontier of a session whose last pick took a whole second."""
    frontier = Frontier()
    frontier.reached(claim.jobs, picking=1.0, full=True)
    return frontier


@pytest.mark.parametrize("queues", [None, ["default", "mail"]])
def test_a_claim_behind_a_frontier_sees_what_follows_it_in_each_queue(
    stage: Stage, queues: list[str] | None
) -> None:
    stage.enqueue()
    stage.enqueue(queue="mail")
    before = stage.claim_up_to(2)
    frontier = come_so_far(before)
    stage.settle(*(ending(job, outcomes.released()) for job in before.jobs))
    follow = [stage.enqueue(queue=queue) for queue in ("default", "mail", "default", "mail")]
    lower = stage.enqueue(priority=-1)
    claims = [stage.claim_up_to(2, queues=queues, frontier=frontier) for _ in range(2)]
    assert sorted(job for claim in claims for job in ids(claim)) == follow
    assert not any(claim.unseen for claim in claims)
    assert ids(stage.claim_up_to(1, queues=queues, frontier=frontier)) == [lower]


def test_a_claim_that_comes_back_short_behind_a_frontier_starts_in_front_the_next_time(
    stage: Stage,
) -> None:
    first = stage.enqueue()
    frontier = come_so_far(stage.claim_up_to(1))
    urgent, follows = stage.enqueue(priority=5), stage.enqueue()
    claim = stage.claim_up_to(3, frontier=frontier)
    assert (ids(claim), claim.unseen, claim.left) == ([follows], True, False)
    claim = stage.claim_up_to(3, frontier=frontier)
    assert (ids(claim), claim.unseen) == ([urgent], False)
    assert first not in ids(claim)


def test_a_pick_that_was_quick_leaves_no_frontier(stage: Stage) -> None:
    stage.enqueue()
    frontier = Frontier()
    frontier.reached(stage.claim_up_to(1).jobs, picking=0.0001, full=True)
    assert not frontier.starts()


def test_a_frontier_is_kept_for_a_share_of_the_time_and_then_forgotten(stage: Stage) -> None:
    stage.enqueue()
    frontier = Frontier()
    frontier.reached(stage.claim_up_to(1).jobs, picking=0.005, full=True)
    assert frontier.starts()
    wait_until(lambda: not frontier.starts(), 10, what="the frontier is forgotten")


@pytest.mark.parametrize("how", [{"alone": True}, {"bounded": False}])
def test_claims_of_another_kind_do_not_look_at_the_frontier(
    stage: Stage, how: dict[str, bool]
) -> None:
    stage.enqueue()
    frontier = come_so_far(stage.claim_up_to(1))
    job = stage.enqueue(priority=5)
    if "alone" in how:
        stage.db.execute("UPDATE django_relay_job SET losses = 1 WHERE id = %s", [job])
    assert ids(stage.claim_up_to(1, frontier=frontier, **how)) == [job]
    assert frontier.starts()


def test_a_look_in_front_that_finds_nothing_keeps_no_old_frontier_alive(stage: Stage) -> None:
    stage.enqueue()
    frontier = come_so_far(stage.claim_up_to(1))
    assert not stage.claim_up_to(1, frontier=frontier).jobs
    assert not stage.claim_up_to(1, frontier=frontier).unseen
    assert not frontier.starts()
