"""Recordings: written and read back, refused in plain words, made into a page of bounded size."""

from __future__ import annotations

import html
import json
import re
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from django_relay import recording, replay
from django_relay.recording import Mark, Moment, NotARecording, RecordedJob, Recording, Sight
from tests.pages import DOCS, PAGES, code, table

CRASH = Recording(
    experiment="crash",
    jobs=(RecordedJob(7, "shop.tasks.pack", "default", "successful"),),
    moments=(
        Moment(0.0, 7, "enqueued", data={"state": "ready"}),
        Moment(12.5, 7, "claimed", 1, "A", "worker 1/1"),
        Moment(
            1890.0,
            7,
            "rescued",
            1,
            "A",
            "worker 1/1",
            data={"state": "ready", "why": "its lease ran out", "lost": True, "expired_ms": 1880.0},
        ),
        Moment(1900.0, 7, "claimed", 2, "B", "worker 2/1"),
        Moment(
            3905.0, 7, "succeeded", 2, "B", "worker 2/1",
            data={"state": "successful", "ran_ms": 2001.0, "renewals": 8},
        ),
        Moment(
            3920.0, 7, "refused", 1, "A", "worker 1/1",
            data={"reason": "superseded", "would_have": "succeed", "late_ms": 2040.0},
        ),
    ),
    sights=(Sight(20.0, 7, "A", 1012.0, 0), Sight(880.0, 7, "A", 1880.0, 3)),
    marks=(Mark(1000.0, "SIGKILL to the whole worker", "worker 1"),),
    settings={"lease": 1.0},
    figures={"kill_to_success_seconds": 2.905},
    software={"postgresql": "18.6"},
    machine="2 cores",
)  # fmt: skip


def document(**changes: Any) -> dict[str, Any]:
    written: dict[str, Any] = json.loads(recording.dump(CRASH))
    return written | changes


def text_of(page: str) -> str:
    """What is read without a script: the page's words, without tags, scripts and styles."""
    words = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", words))


def test_what_was_written_is_read_back() -> None:
    assert recording.load(recording.dump(CRASH)) == CRASH


def test_a_recording_says_its_format_its_version_and_that_it_is_one_run() -> None:
    written = document()
    assert written["format"] == "django_relay.recording"
    assert written["version"] == recording.VERSION
    assert "not a capacity figure" in written["label"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no JSON document"),
        ("hello", "no JSON document"),
        ("[" * 100_000, "no JSON document"),
        ("[]", "no recording"),
        ("null", "no recording"),
        ('{"format": "something else"}', "no recording"),
        (json.dumps(document(version=0)), "has version 0, and this django_relay reads 1"),
        (json.dumps(document(version="1")), "has version '1'"),
        (json.dumps(document(surprise=1)), "has been changed"),
        (json.dumps(document(moments=[{"ms": 0}])), "incomplete"),
        (json.dumps(document(moments=[{"ms": "0", "job": 1, "kind": "claimed"}])), "ms '0'"),
        (json.dumps(document(moments=7)), "has been changed"),
        (json.dumps(document(marks=["SIGKILL"])), "has been changed"),
        (json.dumps(document(figures=[])), "figures []"),
        (json.dumps(document(marks=[{"ms": float("nan"), "what": "x"}])), "ms nan"),
        (json.dumps({k: v for k, v in document().items() if k != "experiment"}), "incomplete"),
    ],
)
def test_what_is_no_recording_is_refused_in_plain_words(text: str, said: str) -> None:
    with pytest.raises(NotARecording, match=re.escape(said)):
        recording.load(text)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
def test_a_truncated_recording_is_refused(share: float) -> None:
    whole = recording.dump(CRASH)
    with pytest.raises(NotARecording, match="only a part of one"):
        recording.load(whole[: int(len(whole) * share)])


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("The document", Recording),
        ("Jobs", RecordedJob),
        ("Moments", Moment),
        ("Sights", Sight),
        ("Marks", Mark),
    ],
)
def test_the_page_of_the_format_tells_every_field(heading: str, kind: type) -> None:
    told = [code(cells[0])[0] for cells in table(DOCS / "reference" / "recordings.md", heading)]
    own = ["format", "version"] if kind is Recording else []
    assert told == own + [each.name for each in fields(kind)]


def test_leases_have_letters_that_do_not_end_at_z() -> None:
    assert [recording.letter(n) for n in (0, 1, 25, 26, 27, 701, 702)] == [
        "A", "B", "Z", "AA", "AB", "ZZ", "AAA",
    ]  # fmt: skip


# The page ---------------------------------------------------------------------------------------


def test_the_page_tells_the_whole_story_without_its_script() -> None:
    told = text_of(replay.self_contained(CRASH))
    story = (
        "Enqueued", "Claimed under lease A", "SIGKILL to the whole worker", "Lease A runs out",
        "Taken back from its worker", "Claimed under lease B", "Succeeded under lease B",
        "Late ending refused",
    )  # fmt: skip
    places = [told.index(words) for words in story]
    assert places == sorted(places)
    assert "its lease had been over for 2.040 s; it would have succeeded. Nothing changes." in told


def test_the_page_carries_everything_and_forbids_itself_the_rest() -> None:
    page = replay.self_contained(CRASH)
    assert "default-src 'none'" in html.unescape(page)
    assert not re.search(r'(src|href)="', page)
    assert not re.search(r"\son\w+=|\sstyle=", page)


def test_what_a_recording_says_cannot_become_markup() -> None:
    evil = "</script><script>alert(1)</script>"
    moments = (Moment(0.0, 7, evil, worker=evil, actor=evil),)
    page = replay.self_contained(replace(CRASH, experiment=evil, moments=moments, machine=evil))
    assert "<script>alert" not in page
    assert page.count("</script>") == 2  # the data and the script


def test_one_event_is_a_page() -> None:
    page = replay.self_contained(replace(CRASH, moments=CRASH.moments[:1], sights=(), marks=()))
    assert "Enqueued" in text_of(page)


def test_a_recording_without_jobs_says_so() -> None:
    told = text_of(replay.self_contained(replace(CRASH, jobs=(), moments=(), sights=())))
    assert "holds no job to follow" in told


def test_ten_thousand_events_are_cut_to_a_page_that_says_so() -> None:
    pairs = [
        (
            Moment(n * 2.0, 7, "claimed", n, recording.letter(n), "worker 1/1"),
            Moment(n * 2.0 + 1, 7, "snoozed", n, recording.letter(n), "worker 1/1"),
        )
        for n in range(5000)
    ]
    many = replace(CRASH, moments=tuple(m for pair in pairs for m in pair), sights=(), marks=())
    began = time.monotonic()
    page = replay.self_contained(recording.load(recording.dump(many)))
    assert time.monotonic() - began < 10
    assert "Job 7 has 10,000 events; this page shows the first and the last 200." in text_of(page)
    assert len(page) < 1_000_000


def test_a_thousand_jobs_are_cut_to_those_with_the_most_to_tell() -> None:
    jobs = tuple(RecordedJob(n, "shop.tasks.pack", "default", "ready") for n in range(1000))
    moments = tuple(Moment(0.0, n, "enqueued", data={"state": "ready"}) for n in range(1000))
    told = text_of(replay.self_contained(replace(CRASH, jobs=(*jobs,), moments=moments)))
    assert "has 1,000 jobs; this page follows the 24 with the most events" in told


def test_unknown_kinds_of_events_and_odd_data_are_told_as_they_are() -> None:
    moments = (
        Moment(0.0, 7, "blessed", data={"state": 5}),
        Moment(1.0, 7, "refused", data={"reason": None, "would_have": [], "late_ms": "x"}),
        Moment(2.0, 7, "claimed", None, None, None),
        Moment(3.0, 7, "succeeded", None, "Q", None, data={"ran_ms": "long"}),
    )
    assert "blessed" in text_of(replay.self_contained(replace(CRASH, moments=moments)))


def row(**changes: Any) -> dict[str, Any]:
    ranks = {"p50": 10.0, "p95": 100.0, "p99": 1000.0}
    values = {"processes": 3, "slots": 4, "jobs_per_second": 800.0, "share": 0.8}
    return (
        values
        | {"ceiling_jobs_per_second": 1000.0, "start_ms": ranks, "finish_ms": ranks}
        | changes
    )


def test_a_burst_is_drawn_beside_its_ceiling_and_told_in_numbers() -> None:
    made = replace(
        CRASH, experiment="burst", jobs=(), moments=(), figures={"configurations": [row()]}
    )
    page = replay.self_contained(recording.load(recording.dump(made)))
    assert "More execution slots." in page
    assert "12 slots, 3 processes" in text_of(page)
    assert "80 % of 1,000/s with no queue" in text_of(page)
    assert page.count('class="replay-reached"') == 2  # for wide and for narrow pages


@pytest.mark.parametrize(
    "configurations",
    [None, [], 7, ["x"], [{}], [row(share="much")], [row(start_ms={})], [row(slots=-1)]],
)
def test_a_burst_without_usable_figures_says_so(configurations: Any) -> None:
    made = replace(CRASH, experiment="burst", figures={"configurations": configurations})
    assert "no configuration with figures" in text_of(replay.self_contained(made))


def test_a_burst_of_nothing_but_zeros_is_drawn() -> None:
    nothing = {"p50": 0.0, "p95": 0.0, "p99": 0.0}
    zeros = row(jobs_per_second=0, ceiling_jobs_per_second=0, share=0, start_ms=nothing)
    made = replace(CRASH, experiment="burst", figures={"configurations": [zeros]})
    assert "0/s" in text_of(replay.self_contained(made))


# The recordings of the documentation --------------------------------------------------------------

RECORDED = sorted((DOCS / "recordings").glob("*.json"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recording_of_the_documentation_has_its_page(path: Path) -> None:
    made = recording.load(path.read_text(encoding="utf-8"))
    page = DOCS / "_static" / "recordings" / f"{path.stem}.html"
    again = "python docs/recordings/record.py --pages makes it anew"
    assert page.read_text(encoding="utf-8") == replay.self_contained(made), again


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_figures_and_pages_that_are_told_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r'(?:href|src)="([^":]+)"', text):
        assert (page.parent / target).exists(), target
    for name, command in re.findall(r"<!-- (\w+): written by (\S+) -->\n(?=<!-- end)", text):
        raise AssertionError(f"the figures of {name} are to be written by {command}")
