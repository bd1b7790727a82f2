"""The code of a queued job is gone after a deploy: the job fails an attempt and waits, no more."""

from __future__ import annotations

import os

import pytest
from django.db import connection

from django_relay import transitions

from . import tasks
from .aftercheck import after_check
from .scene import Scene, enqueue, enqueue_path
from .waiting import wait_until

pytestmark = pytest.mark.process

PRESENT = """
from django_relay import task
from tests.process import ledger

@task
def {name}():
    ledger.write("begin")
    return "back"
"""

#: The path of each job's task, what its module holds now, and what the reason says.
GONE = {
    "gone_function.work": (PRESENT.format(name="other"), "renamed or removed"),
    "gone_module.work": (None, "no such module"),
    "gone_syntax.work": ("def (", "SyntaxError"),
    "gone_import.work": ("import nowhere_at_all", "nowhere_at_all"),
    "gone_exit.work": ("import sys; sys.exit(7)", "SystemExit"),
}


def test_a_job_whose_task_is_gone_fails_attempts_and_runs_once_it_is_back(scene: Scene) -> None:
    for path, (text, _) in GONE.items():
        if text is not None:
            (scene.directory / f"{path.split('.')[0]}.py").write_text(text)
    touched = scene.directory / "touched"
    env = {"PYTHONPATH": os.pathsep.join([str(scene.directory), os.environ.get("PYTHONPATH", "")])}
    jobs = {path: enqueue_path(path) for path in GONE}
    narrower = enqueue_path("tests.process.tasks.noop", "an argument too many")
    never = enqueue_path("os.system", f"touch {touched}")
    worker = scene.start("a", slots=2, env=env)
    for job_id in (*jobs.values(), narrower, never):
        wait_until(
            lambda job_id=job_id: scene.events(job_id, "retried"), 20, what=f"{job_id} is retried"
        )
    scene.succeeds(enqueue(tasks.noop), within=5)

    for path, job_id in jobs.items():
        error = scene.events(job_id, "retried")[0].data["error"]
        assert error["class"].endswith("TaskNotFound")
        assert GONE[path][1] in error["message"]
        assert scene.job(job_id).state in ("scheduled", "ready", "running")
        assert scene.result(job_id).task.name == "work"
    assert "TypeError" in scene.events(narrower, "retried")[0].data["error"]["class"]
    assert "no task" in scene.events(never, "retried")[0].data["error"]["message"]
    transitions.cancel(connection, [never, narrower], actor="an operator", force=True)
    assert {scene.job(job_id).state for job_id in (never, narrower)} == {"cancelled"}
    assert not touched.exists()
    after_check(scene, worker)
    assert worker.stop() == 0

    for path in GONE:
        module, _, name = path.partition(".")
        (scene.directory / f"{module}.py").write_text(PRESENT.format(name=name))
    again = scene.start("b", slots=2, env=env)
    scene.succeeds(*jobs.values(), within=30)
    assert {scene.result(job_id).return_value for job_id in jobs.values()} == {"back"}
    after_check(scene, again)
