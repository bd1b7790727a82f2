"""Turns of a child's bookkeeper with what the database rejects, is slow about, or waits for."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import psycopg
import pytest

from django_relay import outcomes, transitions
from tests.rejecting import Reject

from .books import PLAN, Books, opened, with_two_ended
from .stage import Stage


def test_an_ending_that_a_trigger_rejects_spoils_neither_the_others_nor_the_claim(
    stage: Stage, books: Books, reject: Reject
) -> None:
    jobs, hands, third = with_two_ended(stage, books)
    reject(f"NEW.id = {jobs[0]} AND NEW.state IN ('successful', 'scheduled')")
    books.turn_until(lambda: stage.state(third) == "running")
    assert [stage.state(job) for job in jobs] == ["running", "successful"]
    assert hands[0].settled
    assert hands[0].settled.reason == "unstorable"
    # Its handler has run: if the child dies now, it must not be taken for one that has not.
    transitions.rescue_child(stage.db, PLAN.worker, begun=[])
    assert stage.kinds(jobs[0]) == ["enqueued", "claimed", "rescued"]
    assert (stage.job(jobs[0]) or {})["losses"] == 1


def test_a_job_that_a_trigger_lets_nobody_claim_keeps_no_other_from_its_end_or_start(
    stage: Stage, books: Books, reject: Reject
) -> None:
    jobs, _, third = with_two_ended(stage, books)
    reject(f"NEW.id = {third} AND NEW.state = 'running'")
    fourth = stage.enqueue()
    books.turn_until(lambda: stage.state(fourth) == "running")
    assert [stage.state(job) for job in [*jobs, third]] == ["successful", "successful", "ready"]


def test_however_many_are_rejected_a_child_finds_what_is_behind_them(
    stage: Stage,
    books: Books,
    reject: Reject,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad = stage.fill(60)
    good = stage.enqueue()
    reject(f"NEW.id <= {bad[-1]}")
    books.hands.wake()
    for _ in range(60):
        if stage.state(good) == "running":
            break
        books.keeper._turn()
    assert stage.state(good) == "running"
    assert f"job {bad[0]} is passed over for 10 s" in caplog.text


def test_an_ending_that_comes_back_each_time_keeps_its_child_from_no_claim(
    stage: Stage, books: Books, reject: Reject
) -> None:
    """Neither the job nor its lease can be ended, and the claim is rejected besides."""
    jobs, _, third = with_two_ended(stage, books)
    fourth = stage.enqueue()
    reject(f"NEW.id IN ({jobs[0]}, {third})")
    reject(f"NEW.job_id = {jobs[0]}", "lease")
    books.turn_until(lambda: stage.state(fourth) == "running")
    assert [stage.state(job) for job in [*jobs, third]] == ["running", "successful", "ready"]


def test_outcomes_that_together_take_too_long_are_stored_a_few_at_a_time(stage: Stage) -> None:
    """Each backslash is four of them by the time that the server reads it."""
    plan = replace(PLAN, slots=6, async_slots=6, patience=3.0)
    with opened(plan) as books:
        jobs = [stage.enqueue() for _ in range(6)]
        books.hands.wake()
        books.turn_until(lambda: stage.state(jobs[-1]) == "running")
        hands = [books.take() for _ in jobs]
        text = json.dumps("\\" * 6_000_000)
        for hand in hands:
            books.hands.present(hand, outcomes.succeeded(text))
        for _ in range(40):
            with suppress(psycopg.Error):
                books.keeper._turn()
        assert {stage.state(job) for job in jobs} == {"successful"}


def test_a_statement_that_is_too_slow_for_many_is_sent_for_few(
    stage: Stage, reject: Reject
) -> None:
    """A project's own trigger takes its time over each row."""
    with opened(replace(PLAN, slots=8, async_slots=8, patience=1.0)) as books:
        jobs = [stage.enqueue() for _ in range(8)]
        reject("NEW.state = 'running'", does="PERFORM pg_sleep(0.3); RETURN NEW")
        books.hands.wake()
        for _ in range(20):
            books.hands.beat()
            with suppress(psycopg.Error):
                books.keeper._turn()
            while books.hands._backlog:
                books.take()
            if stage.state(jobs[-1]) == "running":
                break
        assert {stage.state(job) for job in jobs} == {"running"}


def test_an_ending_that_never_comes_through_keeps_its_child_from_no_claim(
    stage: Stage, reject: Reject
) -> None:
    with opened(replace(PLAN, slots=2, async_slots=2, patience=1.0)) as books:
        jobs, _, third = with_two_ended(stage, books)
        slow = f"NEW.id = {jobs[0]} AND NEW.state = 'successful'"
        reject(slow, does="PERFORM pg_sleep(9); RETURN NEW")
        for _ in range(12):
            with suppress(psycopg.Error):
                books.keeper._turn()
        assert [stage.state(job) for job in [*jobs, third]] == ["running", "successful", "running"]


def test_a_claim_that_has_to_wait_keeps_no_job_from_its_end(stage: Stage) -> None:
    """Somebody is about to insert a lease by hand, which only a claim would wait for."""
    with opened(replace(PLAN, slots=2, async_slots=2, patience=1.0)) as books:
        jobs, _, third = with_two_ended(stage, books)
        somebody = stage.connect(autocommit=False)
        somebody.execute(
            "INSERT INTO django_relay_lease (job_id, token, worker, claim, acquired_at, expires_at,"
            " renewals) VALUES (%s, gen_random_uuid(), 'nobody', 1, now(), now(), 0)",
            [third],
        )
        books.keeper._turn()
        assert [stage.state(job) for job in jobs] == ["running", "running"]
        for _ in range(3):
            with suppress(psycopg.errors.QueryCanceled):
                books.keeper._turn()
        assert [stage.state(job) for job in jobs] == ["successful", "successful"]
        assert stage.state(third) == "ready"
        somebody.rollback()
        books.turn_until(lambda: stage.state(third) == "running")
        assert not books.keeper._apart
