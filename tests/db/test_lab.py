"""What the lab promises of a database that is not its own, and that its verdict can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.core.management.base import CommandError

from django_relay import outcomes, transitions
from django_relay.lab import places, verdict
from django_relay.lab.burst import Wishes
from django_relay.lab.places import Place
from django_relay.states import State

from .stage import Stage, ending, success


@dataclass(frozen=True, slots=True)
class Here(Place):
    """The stage's own session in place of Django's, which is in a test's transaction."""

    stage: Stage

    @property
    def connection(self) -> Any:
        return self.stage.db


@pytest.fixture
def place(stage: Stage) -> Place:
    return Here("default", "default", 30.0, stage)


def test_only_the_labs_own_jobs_are_deleted(stage: Stage, place: Place) -> None:
    others = [stage.make(state).job_id for state in (State.SUCCESSFUL, State.FAILED)]
    running = stage.enqueue(queue="relay_lab", priority=9)
    stage.claim()
    lab = [stage.enqueue(queue=name) for name in ("relay_lab", "relay_lab_backlog")]
    places.tidy(place)
    assert all(stage.state(job_id) for job_id in others)
    assert not any(stage.state(job_id) for job_id in [*lab, running])


def test_a_worker_of_any_queue_stands_in_the_way(stage: Stage, place: Place) -> None:
    def attend(name: str, queues: list[str] | None) -> None:
        transitions.attend(
            stage.db, name, queues=queues, processes=1, slots=1, version="1", waiting=True
        )

    attend("host-1-mail", ["default", "mail"])
    places.clear(place)
    for name, queues in (("host-2-any", None), ("host-3-lab", ["mail", "relay_lab"])):
        attend(name, queues)
        with pytest.raises(CommandError, match=name):
            places.clear(place)
        transitions.leave(stage.db, name)
    places.clear(place)


@pytest.mark.parametrize("queues", [["default"], None])
def test_a_project_without_a_queue_for_it_is_told_what_to_add(
    queues: list[str] | None, settings: object
) -> None:
    entry = {"BACKEND": "django_relay.backend.RelayBackend"}
    settings.TASKS = {"default": entry | ({"QUEUES": queues} if queues else {})}  # type: ignore[attr-defined]
    with pytest.raises(CommandError, match=r'TASKS\["relay_lab"\] = '):
        places.find()


def judged(stage: Stage, place: Place, path: Path, accepted: list[int], *begun: str) -> str:
    """The verdict's problems; ``begun`` are "job claim" of handlers that began."""
    lines = (f"begin {each} 1 1 0.0\n" for each in begun)
    path.write_text("".join(lines))
    found = verdict.reach(place, path, 0, accepted)
    assert bool(found.problems) == bool(
        found.figures["lost"]
        or set(found.figures["accepted_outcomes_per_job"]) - {"1"}
        or found.figures["duplicates_unexplained"]
        or found.figures["audit_findings"]
    )
    return " | ".join(found.problems)


def test_a_run_without_loss_is_judged_so(stage: Stage, place: Place, tmp_path: Path) -> None:
    job_id = stage.enqueue(queue="relay_lab")
    stage.settle(ending(stage.claim(), outcomes.released()))
    stage.settle(success(stage.claim()))
    path = tmp_path / "ledger"
    assert judged(stage, place, path, [job_id], f"{job_id} 1", f"{job_id} 2") == ""


def test_a_lost_job_is_judged_lost(stage: Stage, place: Place, tmp_path: Path) -> None:
    job_id = stage.enqueue(queue="relay_lab")
    said = judged(stage, place, tmp_path / "ledger", [job_id, job_id + 1])
    assert f"job {job_id} was accepted and did not succeed" in said
    assert f"job {job_id + 1} was accepted and did not succeed" in said


@pytest.mark.parametrize("begun", ["1 1", "2", "3"])
def test_a_start_for_no_reason_is_judged_so(
    stage: Stage, place: Place, tmp_path: Path, begun: str
) -> None:
    job_id = stage.enqueue(queue="relay_lab")
    stage.settle(success(stage.claim()))
    claims = [f"{job_id} {claim}" for claim in begun.split()]
    said = judged(stage, place, tmp_path / "ledger", [job_id], *claims)
    assert "began for a reason that is in no event" in said


def test_two_accepted_outcomes_are_judged_so(stage: Stage, place: Place, tmp_path: Path) -> None:
    job_id = stage.enqueue(queue="relay_lab")
    stage.settle(success(stage.claim()))
    stage.db.execute(
        "INSERT INTO django_relay_event (job_id, kind, at, claim, token, data) SELECT job_id, kind,"
        " at, claim, token, data FROM django_relay_event WHERE kind = 'succeeded'"
    )
    said = judged(stage, place, tmp_path / "ledger", [job_id], f"{job_id} 1")
    assert "has 2 accepted outcomes" in said
    assert "audit: job" in said


def wishes(slots: tuple[int, ...] | None, processes: tuple[int, ...] | None) -> Wishes:
    burst = {"submit": "one", "noop": False, "backlog": 0, "finished": 0, "repeat": 1}
    return Wishes(jobs=1, slots=slots, processes=processes, **burst)  # type: ignore[arg-type]


def test_configurations_of_a_burst_go_pair_by_pair() -> None:
    assert wishes(None, None).configurations() == [(1, 1), (1, 4), (3, 4)]
    assert wishes((1, 4), None).configurations() == [(1, 1), (1, 4)]
    assert wishes((4,), (1, 2, 3)).configurations() == [(1, 4), (2, 4), (3, 4)]
    with pytest.raises(CommandError, match="as many numbers"):
        wishes((1, 2), (1, 2, 3)).configurations()
