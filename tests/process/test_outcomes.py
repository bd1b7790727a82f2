"""Outcomes that the database would refuse, or that are enormous: stored at once, in words that fit.

What each value becomes is in tests/unit/test_storable.py; here a worker meets them.
"""

from __future__ import annotations

import pytest

from django_relay import storable

from . import spoilt
from .aftercheck import after_check
from .scene import Scene, enqueue

pytestmark = pytest.mark.process

#: What is raised; the class, and what the stored text begins and ends with.
RAISED = {
    "text": ("builtins.ValueError", r"a NUL \x00 and", r"half of a pair \ud800"),
    "class name": (r"tests.process.spoilt.a NUL \x00 and half of a pair \ud800", "by", "its name"),
    "source line": ("builtins.ValueError", "by", "a line"),
    "size": ("builtins.ValueError", "the beginning xxx", "xxx the end"),
    "causes": ("builtins.RuntimeError", "the", "last"),
    "causes and size": ("builtins.RuntimeError", "the", "last"),
    "group": ("builtins.ExceptionGroup", "several", "(2 sub-exceptions)"),
    "note": ("builtins.ValueError", "with", "a note"),
    "recursion": ("builtins.RecursionError", "maximum recursion", "exceeded"),
}
#: What a stored traceback tells, at its beginning and at its end.
TRACEBACKS = {
    "source line": ("<no source lines", "ValueError: by a line\n"),
    "size": ("Traceback", "xxx the end\n"),
    "causes": ("Traceback", "RuntimeError: the last\n"),
    "causes and size": ("Traceback", "RuntimeError: the last\n"),
    "note": ("Traceback", "half of a pair \\ud800\n"),
}

RETURNED = {
    "NaN": "NaN or infinite",
    "infinity": "NaN or infinite",
    "NUL": "NUL character",
    "half of a pair": "half of a surrogate pair",
    "set": "of type set",
    "bytes": "of type bytes",
    "model": "Pass its primary key",
    "itself": "contains itself",
    "keys": "a key of type tuple",
    "depth": "100 levels",
    "size": "16 million characters",
    "digits": "4,200 digits",
}

TWICE = ["enqueued", "claimed", "retried", "claimed", "failed"]


def test_an_error_that_cannot_be_stored_as_it_is_is_stored_in_other_words(scene: Scene) -> None:
    worker = scene.start("a", slots=2, flags=["--prefetch", "0"])
    jobs = {how: enqueue(spoilt.raise_spoilt, how) for how in RAISED}
    scene.reaches("failed", *jobs.values(), within=90)
    for how, job_id in jobs.items():
        assert scene.kinds(job_id) == TWICE, how
        cls, first, last = RAISED[how]
        for event in scene.events(job_id, "retried", "failed"):
            error = event.data["error"]
            assert error["class"] == cls, how
            assert error["message"].startswith(first), how
            assert last in error["message"][-60:], how
            assert len(error["message"]) <= storable.MAX_MESSAGE
            assert len(error["traceback"]) <= storable.MAX_TRACEBACK
            begins, ends = TRACEBACKS.get(how, ("", ""))
            assert error["traceback"].lstrip(" |+").startswith(begins), how
            assert error["traceback"].endswith(ends), how
    cause = scene.events(jobs["causes"], "failed")[0].data["error"]["traceback"]
    assert "cause 0\n" in cause, "the first cause is where it began"
    assert scene.result(jobs["class name"]).errors[0].exception_class is Exception
    worker.provoked = True  # Django 5.2's backport logs what failed tasks raised
    after_check(scene, worker)


def test_a_result_that_cannot_be_stored_fails_the_attempt_and_says_why(scene: Scene) -> None:
    worker = scene.start("a", slots=2, flags=["--prefetch", "0"])
    jobs = {how: enqueue(spoilt.return_spoilt, how) for how in RETURNED}
    scene.reaches("failed", *jobs.values(), within=60)
    for how, job_id in jobs.items():
        assert scene.kinds(job_id) == TWICE, how
        assert len(scene.begins(job_id)) == 2, how
        for event in scene.events(job_id, "retried", "failed"):
            assert event.data["error"]["class"] == "django_relay.storable.Unstorable"
            assert RETURNED[how] in event.data["error"]["message"], how
        assert scene.job(job_id).result is None
    after_check(scene, worker)
