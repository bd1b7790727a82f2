"""A recording of the database: letters for tokens, numbers for workers, times from the enqueue."""

from __future__ import annotations

import pytest

from django_relay import outcomes, recording, transitions

from .stage import ERROR, Stage, ending, success


def crashed(stage: Stage) -> tuple[int, list[str]]:
    """A job that lost its first worker, was finished by a second and refused the first."""
    job_id = stage.enqueue()
    first = stage.claim(worker="secret-host-1-abc/1")
    stage.age_lease(job_id, 3600)
    transitions.rescue_expired(stage.db)
    second = stage.claim(worker="secret-host-2-def/3", alone=True)
    stage.settle(success(second))
    stage.settle(success(first))
    return job_id, [first.token, second.token]


def test_a_history_is_told_with_letters_and_numbers(stage: Stage) -> None:
    job_id, tokens = crashed(stage)
    made = recording.record(stage.db, [job_id])
    told = [(moment.kind, moment.lease, moment.worker) for moment in made.moments]
    assert told == [
        ("enqueued", None, None),
        ("claimed", "A", "worker 1/1"),
        ("rescued", "A", "worker 1/1"),
        ("claimed", "B", "worker 2/3"),
        ("succeeded", "B", "worker 2/3"),
        ("refused", "A", "worker 1/1"),
    ]
    assert made.jobs[0].state == "successful"
    text = recording.dump(made)
    assert "secret-host" not in text
    assert not [token for token in tokens if token in text]
    assert recording.load(text) == made


def test_times_are_milliseconds_from_the_enqueue(stage: Stage) -> None:
    job_id = stage.enqueue()
    claimed = stage.claim()
    stage.settle(ending(claimed, outcomes.raised(ERROR, delay=60.0)))
    made = recording.record(stage.db, [job_id])
    enqueued, _, retried = made.moments
    assert enqueued.ms == 0
    assert retried.data["run_after_ms"] == pytest.approx(retried.ms + 60_000, abs=1)
    assert not {"run_after", "expired_at"} & set(retried.data)
    assert retried.data["error"] == {"class": "builtins.ValueError", "message": "no"}


def test_the_end_of_a_lost_lease_is_told_from_the_enqueue(stage: Stage) -> None:
    job_id, _ = crashed(stage)
    rescued = recording.record(stage.db, [job_id]).moments[2]
    # Its lease of ten minutes was aged by an hour.
    assert rescued.data["expired_ms"] == pytest.approx(-3_000_000, abs=20_000)


def test_looks_at_leases_show_how_their_ends_moved(stage: Stage) -> None:
    job_id = stage.enqueue()
    claimed = stage.claim(lease=60.0)
    seen = recording.look(stage.db, queue="default")
    seen += recording.look(stage.db, queue="default")  # nothing new
    held = [transitions.Held(job_id, claimed.token, 0.1)]
    transitions.renew(stage.db, held, lease=90.0)
    seen += recording.look(stage.db, queue="default")
    assert recording.look(stage.db, queue="another") == []
    first, second = recording.record(stage.db, [job_id], seen=seen).sights
    assert (first.lease, first.renewals, second.renewals) == ("A", 0, 1)
    assert second.ends_ms - first.ends_ms == pytest.approx(30_000, abs=5_000)


def test_marks_name_workers_as_the_events_do(stage: Stage) -> None:
    job_id, _ = crashed(stage)
    at = stage.value("SELECT EXTRACT(EPOCH FROM enqueued_at)::float8 + 1 FROM django_relay_job")
    marks = [
        (at, "SIGKILL", "secret-host-1-abc"),
        (at, "SIGKILL", "secret-host-2-def/3"),
        (at, "SIGKILL", "secret-host-9-xyz"),
        (at, "a restart", ""),
    ]
    made = recording.record(stage.db, [job_id], marks=marks)
    targets = ["worker 1", "worker 2/3", "another worker", ""]
    assert [mark.target for mark in made.marks] == targets
    assert made.marks[0].ms == pytest.approx(1000)


def test_a_job_that_is_not_there_cannot_be_recorded(stage: Stage) -> None:
    with pytest.raises(LookupError, match="none of the jobs"):
        recording.record(stage.db, [1_000_000])


def test_a_long_history_is_read_by_its_ends(stage: Stage) -> None:
    job_id = stage.enqueue()
    for _ in range(3):
        stage.settle(ending(stage.claim(), outcomes.released()))
    whole = recording.record(stage.db, [job_id])
    made = recording.record(stage.db, [job_id], most=4)
    assert (len(whole.moments), whole.jobs[0].left_out) == (7, 0)
    assert made.moments == (*whole.moments[:2], *whole.moments[-2:])
    assert made.jobs[0].left_out == 3
    assert [moment.lease for moment in made.moments] == [None, "A", "C", "C"]
    assert recording.load(recording.dump(made)) == made
    assert recording.record(stage.db, [job_id], most=8) == whole


def test_more_events_than_are_counted_are_more_than_that(stage: Stage) -> None:
    job_id = stage.enqueue()
    stage.db.execute(
        "INSERT INTO django_relay_event (job_id, kind, at) SELECT %s, 'moved', clock_timestamp() "
        "FROM generate_series(1, 12000)",
        [job_id],
    )
    made = recording.record(stage.db, [job_id], most=10)
    assert made.jobs[0].left_out == recording.COUNTED + 1 - 10


def test_workers_keep_their_names_only_where_that_is_asked_for(stage: Stage) -> None:
    job_id, _ = crashed(stage)
    made = recording.record(stage.db, [job_id], hosts=True)
    assert {moment.worker for moment in made.moments if moment.worker} == {
        "secret-host-1-abc/1",
        "secret-host-2-def/3",
    }


@pytest.mark.parametrize("at", ["infinity", "-infinity", "294276-12-31"])
@pytest.mark.parametrize(
    "data",
    [
        "[]",
        '"text"',
        "null",
        '{"run_after": "2020-13-77", "expired_at": 7, "error": "text"}',
        '{"run_after": "infinity", "expired_at": "10000-01-01"}',
        '{"n": ' + "9" * 5000 + "}",
        '{"long": "' + "x" * 30_000 + '"}',
    ],
)
def test_whatever_stands_in_an_event_it_can_be_recorded(stage: Stage, data: str, at: str) -> None:
    job_id, _ = crashed(stage)
    stage.db.execute("UPDATE django_relay_event SET at = %s, data = %s", [at, data])
    made = recording.record(stage.db, [job_id])
    assert len(made.moments) == 6
    assert recording.load(recording.dump(made)) == made
