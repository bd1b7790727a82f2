"""One job's story: its order, its leases, its lanes, its words, whatever the recording holds."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from django.utils import translation
from hypothesis import strategies as st

from django_relay import recording, replay
from django_relay.admin import attempts, jobpage
from django_relay.recording import Mark, Moment, RecordedJob, Recording, Sight
from django_relay.replay import layout, story, wording
from django_relay.replay.story import Story
from django_relay.states import EventKind
from tests.pages import DOCS

JOB = RecordedJob(7, "shop.tasks.pack", "default", "ready")


def tell(*moments: Moment, job: RecordedJob = JOB, **changes: Any) -> Story:
    made = Recording(experiment="job", jobs=(job,), moments=moments, **changes)
    return story.tell(made, job)


def enqueued(ms: float = 0.0) -> Moment:
    return Moment(ms, 7, "enqueued", data={"state": "ready"})


def claimed(ms: float, claim: int = 1, worker: str | None = "worker 1/1") -> Moment:
    return Moment(ms, 7, "claimed", claim, recording.letter_of(claim), worker)


def ended(ms: float, kind: str, claim: int = 1, **data: Any) -> Moment:
    return Moment(ms, 7, kind, claim, recording.letter_of(claim), "worker 1/1", data=data)


def rescued(ms: float, claim: int = 1, **data: Any) -> Moment:
    return ended(ms, "rescued", claim, state="ready", lost=True, **data)


# The order ----------------------------------------------------------------------------------------


def test_a_clock_that_was_set_back_does_not_change_the_order() -> None:
    told = tell(enqueued(), claimed(5000.0), ended(2000.0, "succeeded", state="successful"))
    assert [beat.kind for beat in told.beats] == ["enqueued", "claimed", "succeeded"]
    assert [beat.time for beat in told.beats] == ["0.000 s", "5.000 s", "2.000 s"]
    assert [beat.ms for beat in told.beats] == [0.0, 5000.0, 5000.0]


def test_times_count_from_the_enqueue_although_an_event_is_told_before_it() -> None:
    told = tell(Moment(-9e9, 7, "moved"), enqueued(100.0), claimed(150.0))
    assert [beat.time for beat in told.beats][1:] == ["0.000 s", "0.050 s"]


@pytest.mark.parametrize("odd", [-9e15, 9e15])
def test_a_time_far_away_leaves_a_scale_that_can_be_drawn(odd: float) -> None:
    told = tell(enqueued(), claimed(odd), ended(2000.0, "succeeded", state="successful"))
    places = [place for _ms, place in told.scale]
    assert places == sorted(places)
    assert places[-1] < 10_000


def test_what_a_recording_leaves_out_is_left_out_between_its_halves() -> None:
    moments = [enqueued(), claimed(1.0), ended(90.0, "snoozed", 40, state="scheduled")]
    moments.append(claimed(95.0, 41))
    told = tell(*moments, job=replace(JOB, left_out=76))
    kinds = [beat.kind for beat in told.beats]
    assert kinds == ["enqueued", "claimed", "gap", "snoozed", "claimed"]
    assert told.excerpt.how_many == "80"
    many = tell(*moments, job=replace(JOB, left_out=recording.COUNTED))
    assert many.excerpt.how_many == "more than 10,000"


def test_nothing_is_held_or_waited_for_through_a_gap() -> None:
    first, second = enqueued(), claimed(1.0)
    tail = (ended(90.0, "snoozed", 40, state="scheduled"), claimed(95.0, 41))
    told = tell(first, second, *tail, job=replace(JOB, left_out=76))
    assert [(lease.letter, lease.until) for lease in told.leases] == [("A", 1.0), ("AO", None)]
    waiting = tell(second, first, *tail, job=replace(JOB, left_out=76))
    assert waiting.waits[0] == (1.0, 1.0, "ready")


# The leases ---------------------------------------------------------------------------------------


def test_a_lease_that_ran_out_is_told_to_have_run_out() -> None:
    told = tell(enqueued(), claimed(10.0), rescued(1200.0, expired_ms=1010.0))
    assert [beat.title for beat in told.beats][2] == "Lease A runs out"
    assert told.leases[0].ends == [(10.0, 1010.0)]


def test_the_lease_of_a_dead_child_did_not_run_out() -> None:
    told = tell(enqueued(), claimed(10.0), rescued(900.0, expired_ms=900.0))
    assert [beat.kind for beat in told.beats] == ["enqueued", "claimed", "rescued"]
    assert told.leases[0].ends == [], "when it would have ended is not known"


def test_the_end_of_a_renewed_lease_is_not_told_before_it_is_known() -> None:
    told = tell(enqueued(), claimed(10.0), rescued(9200.0, expired_ms=9010.0, renewals=32))
    assert told.leases[0].ends == [(9010.0, 9010.0)]


def test_a_look_after_renewals_tells_nothing_of_the_time_before() -> None:
    seen = Sight(60_000.0, 7, "A", 85_000.0, 5)
    told = tell(enqueued(), claimed(10.0), sights=(seen,))
    assert told.leases[0].ends == [(60_000.0, 85_000.0)]
    assert told.end == 60_000.0, "it is known until that look"


def test_a_claim_by_nobody_has_no_lane_and_is_told() -> None:
    told = tell(enqueued(), claimed(10.0, worker=None))
    assert told.leases == []
    assert told.lanes == []
    assert told.beats[1].title == "Claimed under lease A"


def test_leases_take_turns_with_the_colours_as_in_the_admin() -> None:
    hues = [layout.hue(recording.letter(number)) for number in (0, 5, 6, 25, 26, 701)]
    assert hues == ["A", "F", "A", "B", "C", "F"]


# The lanes ----------------------------------------------------------------------------------------


def test_the_many_workers_of_an_old_job_share_a_lane() -> None:
    claims = [claimed(n * 10.0, n, f"worker {n}/1") for n in range(1, 31)]
    told = tell(enqueued(), *claims)
    assert len(told.lanes) == layout.LANES
    assert told.lanes[-1] == "Other workers"
    assert told.lanes[-2] == "Worker 30"
    assert {lease.lane for lease in told.leases} == set(range(layout.LANES))
    assert told.beats[1].worker == "Worker 1", "the list names each"


@pytest.mark.parametrize(
    ("workers", "names"),
    [
        (["worker 1/1", "worker 2/1"], ["Worker 1", "Worker 2"]),
        (["worker 1/1", "worker 1/2"], ["Worker 1, process 1", "Worker 1, process 2"]),
        (["worker 1"], ["Worker 1"]),
        (["web1-4121-a8f3c2/1", "web1-4121-a8f3c2/2"], None),
        (["another worker/3"], None),
    ],
)
def test_numbered_workers_are_named_shortly_and_others_as_they_are(
    workers: list[str], names: list[str] | None
) -> None:
    told = tell(enqueued(), *(claimed(n, n, own) for n, own in enumerate(workers, start=1)))
    assert told.lanes == (names or workers)


def test_what_was_done_to_one_child_is_told_of_that_child() -> None:
    mark = Mark(20.0, "SIGKILL to one child", "worker 1/2")
    workers = claimed(5.0, 1, "worker 1/1"), claimed(15.0, 2, "worker 1/2")
    told = tell(enqueued(), *workers, rescued(30.0, 2), marks=(mark,))
    kill = next(beat for beat in told.beats if beat.kind == "sigkill")
    assert (kill.lane, kill.worker) == (1, "Worker 1, process 2")
    assert [lease.silent for lease in told.leases] == [None, 20.0]


# The words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("enqueued", {"state": "blocked"}, "committed together, behind others"),
        ("retried", {"ran_ms": 1500.0, "run_after_ms": 9000.0}, "ran 1.500 s, due at 9.000 s"),
        ("rescheduled", {"run_after_ms": 1000.4}, "Due at once"),
        ("released", {"began": False, "why": "its process died"}, "Before it began, its process"),
        ("released", {"began": True, "ran_ms": 100}, "By a stopping worker, the handler ran 0.1"),
        ("failed", {"why": "its lease ran out"}, "Its lease ran out"),
        ("cancelled", {"forced": True}, "By force"),
        ("moved", {"queue": "mail", "priority": 5}, "To queue mail, priority 5"),
        ("succeeded", {"renewals": 1}, "The lease was renewed once"),
        ("refused", {}, "Nothing changes."),
        ("failed", {"error": {"class": "a.Full", "message": "\nno room\nat all"}}, "Full: no room"),
    ],
)
def test_an_event_tells_what_is_particular_about_it(
    kind: str, data: dict[str, Any], said: str
) -> None:
    assert said in wording.whole_note(Moment(1000.0, 7, kind, data=data))


def test_who_wished_it_is_named_without_the_key() -> None:
    assert wording.whole_note(Moment(0.0, 7, "requeued", actor="17 ada")) == "By ada"


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (1234.5678, "1.235 s"),
        (-5.0, "-0.005 s"),
        (125_000, "2 min 05 s"),
        (7_200_000, "2 h 00 min"),
        (200_000_000, "2 d 7 h"),
        (9e15, "104166666 d 16 h"),
    ],
)
def test_a_time_is_told_as_precisely_as_it_matters(ms: float, said: str) -> None:
    assert wording.clock(ms) == said


KEYS = [
    "state", "verb", "began", "ran_ms", "renewals", "run_after_ms", "expired_ms", "error", "why",
    "forced", "queue", "reason", "would_have", "late_ms",
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.just(10**400) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)  # fmt: skip
MOMENTS = st.builds(
    Moment,
    ms=st.floats(-1e15, 1e15),
    job=st.just(7),
    kind=st.sampled_from([*EventKind.values, "blessed", ""]),
    claim=st.none() | st.integers(-1, 5),
    lease=st.none() | st.sampled_from(["A", "B", "ZZ", "é", ""]),
    worker=st.none() | st.sampled_from(["", "worker 1/1", "w/2"]),
    actor=st.none() | st.text(max_size=3),
    data=st.dictionaries(st.sampled_from(KEYS), JSON),
)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(st.lists(MOMENTS, max_size=8), st.integers(0, 3))
def test_no_history_is_too_odd_for_a_page(moments: list[Moment], left_out: int) -> None:
    job = replace(JOB, left_out=left_out)
    made = Recording(experiment="job", jobs=(job,), moments=tuple(moments))
    assert "</html>" in replay.self_contained(made)
    data = story.tell(made, job).data()
    assert json.loads(json.dumps(data, allow_nan=False))["id"] == 7
    times = [beat[0] for beat in data["beats"]]
    assert times == sorted(times)


def compiled(messages: dict[str, str]) -> bytes:
    """Make a catalogue of translations as msgfmt does."""
    texts = sorted(({"": "Content-Type: text/plain; charset=UTF-8\n"} | messages).items())
    head, table = 28, b""
    keys, values = (b"".join(each[n].encode() + b"\0" for each in texts) for n in (0, 1))
    at = head + 16 * len(texts)
    for n, start in ((0, at), (1, at + len(keys))):
        for each in texts:
            length = len(each[n].encode())
            table += struct.pack("<II", length, start)
            start += length + 1
    places = head, head + 8 * len(texts), 0, 0
    return struct.pack("<IIIIIII", 0x950412DE, 0, len(texts), *places) + table + keys + values


def test_the_words_are_those_of_the_readers_language(settings: Any, tmp_path: Path) -> None:
    catalogue = {"Claimed under lease %(lease)s": "Unter %(lease)s genommen", "Play": "Abspielen"}
    (tmp_path / "de" / "LC_MESSAGES").mkdir(parents=True)
    (tmp_path / "de" / "LC_MESSAGES" / "django.mo").write_bytes(compiled(catalogue))
    settings.LOCALE_PATHS = [tmp_path]
    with translation.override("de"):
        assert tell(enqueued(), claimed(1.0)).beats[1].title == "Unter A genommen"
        page = replay.self_contained(Recording(experiment="job", jobs=(JOB,), moments=()))
    assert '<html lang="de">' in page
    assert "<span>Abspielen</span>" in page
    assert '"play": "Abspielen"' in page


def test_a_drawing_is_the_same_in_a_language_that_writes_a_comma() -> None:
    ranks = {"p50": 10.5, "p95": 100.5, "p99": 1000.5}
    row = {"processes": 3, "slots": 4, "jobs_per_second": 812.5, "ceiling_jobs_per_second": 1000.5}
    row |= {"share": 0.8, "start_ms": ranks, "finish_ms": ranks}
    made = Recording(experiment="burst", jobs=(), moments=(), figures={"configurations": [row]})
    with translation.override("de"):
        page = replay.self_contained(made)
    numbers = re.findall(r' (?:x|y|width|cx|x1|x2)="([^"]*)"', page)
    assert numbers
    assert not [each for each in numbers if not re.fullmatch(r"-?[\d.]+", each)]


def test_the_page_on_the_admin_tells_what_is_shown() -> None:
    told = " ".join((DOCS / "reference" / "admin.md").read_text(encoding="utf-8").split())
    half = jobpage.EVENTS // 2
    assert (
        f"more than {jobpage.EVENTS} events it shows the first {half} and the last {half}" in told
    )
    assert ("of more than six seconds are cut short" in told) is (layout.LONG == 6000)
    assert ("the last twenty attempts" in told) is (attempts.SHOWN == 20)
