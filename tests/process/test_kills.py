"""A process is killed or frozen in mid-job: the job is done once more, by another, by itself."""

from __future__ import annotations

import signal
from dataclasses import dataclass

import pytest

from . import LONG, tasks, times
from .aftercheck import after_check
from .scene import Scene, Scenes, enqueue
from .waiting import let_pass, wait_until
from .workers import Worker, runs, send

pytestmark = pytest.mark.process

LEASE, POLL = 6.0, 0.5

#: What is signalled, and with what.
WAYS = {
    "child killed": ("children", signal.SIGKILL),
    "supervisor killed": ("supervisor", signal.SIGKILL),
    "group killed": ("group", signal.SIGKILL),
    "child frozen": ("children", signal.SIGSTOP),
    "supervisor frozen": ("supervisor", signal.SIGSTOP),
    "group frozen": ("group", signal.SIGSTOP),
}


@dataclass(frozen=True, slots=True)
class Loss:
    """What became of one job whose worker was harmed."""

    seconds: float
    begins: int
    kinds: list[str]
    workers: list[str]
    losses: int


def harm(worker: Worker, whom: str, how: signal.Signals) -> None:
    """Signal one part of a worker."""
    send(
        {"children": worker.children, "supervisor": [worker.pid], "group": worker.group}[whom], how
    )


@pytest.mark.smoke
def test_a_killed_childs_job_is_taken_over_at_once_where_a_slot_is_free(scene: Scene) -> None:
    worker = scene.start("a", slots=1, processes=2)
    job_id = enqueue(tasks.linger, 60, 0.5)
    first = scene.begun(job_id)
    # The other child has to be up, or its start would be measured.
    scene.succeeds(enqueue(tasks.noop))

    killed = scene.now()
    send([first.pid], signal.SIGKILL)
    (job,) = scene.succeeds(job_id)

    what = "child killed, a slot free elsewhere (job of 0.5 s)"
    seconds = times.note(what, killed, job.finished_at)
    assert seconds < 1.0 + 0.5
    assert [mark.pid != first.pid for mark in scene.begins(job_id)] == [False, True]
    assert scene.kinds(job_id) == ["enqueued", "claimed", "rescued", "claimed", "succeeded"]
    assert job.losses == 1
    after_check(scene, worker)


@pytest.fixture(scope="module")
def losses(scenes: Scenes) -> dict[str, Loss]:
    """Six workers with a job each, harmed in six ways; a seventh that serves all their queues."""
    with scenes("losses") as scene:
        victims = {way: scene.start(way.replace(" ", "-"), queues=[way]) for way in WAYS}
        other = scene.start("other", queues=list(WAYS), slots=2, processes=3)
        gate = scene.occupy(other)
        jobs = {way: enqueue(tasks.go_on_until_told, 0.5, queue=way) for way in WAYS}
        for job_id in jobs.values():
            scene.begun(job_id, within=60)

        harmed = {}
        for way, victim in victims.items():
            harmed[way] = scene.now()
            harm(victim, *WAYS[way])
        gate.touch()
        ended = scene.succeeds(*jobs.values(), within=30)
        found = {}
        for way, job in zip(WAYS, ended, strict=True):
            found[way] = Loss(
                seconds=times.note(f"{way} (job of 0.5 s)", harmed[way], job.finished_at),
                begins=len(scene.begins(job.pk)),
                kinds=scene.kinds(job.pk),
                workers=[event.worker for event in scene.events(job.pk, "claimed")],
                losses=job.losses,
            )

        frozen = [victims[way] for way in WAYS if "frozen" in way]
        for victim in frozen:
            send(victim.group, signal.SIGCONT)
        after_check(scene, other, victims["child killed"], *frozen)
        return found


@pytest.mark.parametrize("way", WAYS)
def test_a_harmed_workers_job_is_done_once_more_by_another(
    losses: dict[str, Loss], way: str
) -> None:
    loss = losses[way]
    assert loss.begins == 2
    # A child that goes on without its supervisor may say "too late" already.
    kinds = [kind for kind in loss.kinds if kind != "refused"]
    assert kinds == ["enqueued", "claimed", "rescued", "claimed", "succeeded"]
    assert loss.losses == 1
    assert len(set(loss.workers)) == 2
    assert loss.seconds < LEASE + 2.0 + 0.5


@dataclass(frozen=True, slots=True)
class Recovery:
    """How a lost job came back; all times in seconds after the kill."""

    lease_over: float
    rescued: float
    began_again: float
    begins: int
    kinds: list[str]


@pytest.fixture(scope="module")
def recoveries(scenes: Scenes) -> dict[str, Recovery]:
    """Three workers killed in mid-job, and for each another one that comes at once or later."""
    cases = {"supervisor": "supervisor", "group": "group", "nobody": "group"}
    with scenes("recoveries") as scene:
        victims = {case: scene.start(f"{case}-a", queues=[case]) for case in cases}
        jobs = {case: enqueue(tasks.linger, 20, 0.2, queue=case) for case in cases}
        for job_id in jobs.values():
            scene.begun(job_id, within=60)
        killed = {}
        for case, whom in cases.items():
            killed[case] = scene.now()
            harm(victims[case], whom, signal.SIGKILL)
        others = []
        for case in ("supervisor", "group"):
            enqueue(tasks.rest, 4, queue=f"only-{case}-b")
            others.append(scene.start(f"{case}-b", queues=[case]))
        scene.succeeds(jobs["supervisor"], jobs["group"], within=25)
        # Nobody serves the third queue. It needs no worker of its own to be given back.
        scene.reaches("ready", jobs["nobody"], within=5)
        let_pass(LEASE)
        others.append(scene.start("nobody-b", queues=["nobody"]))
        scene.succeeds(jobs["nobody"], within=10)
        after_check(scene, *others)

        found = {}
        for case, job_id in jobs.items():
            (rescue,) = scene.events(job_id, "rescued")
            over = scene.job(job_id).enqueued_at.fromisoformat(rescue.data["expired_at"])
            found[case] = Recovery(
                lease_over=(over - killed[case]).total_seconds(),
                rescued=(rescue.at - killed[case]).total_seconds(),
                began_again=(scene.begins(job_id)[1].at - killed[case]).total_seconds(),
                begins=len(scene.begins(job_id)),
                kinds=scene.kinds(job_id),
            )
        return found


@pytest.mark.parametrize("case", ["supervisor", "group"])
def test_a_worker_whose_only_slot_is_busy_recovers_a_killed_workers_job(
    recoveries: dict[str, Recovery], case: str
) -> None:
    recovery = recoveries[case]
    assert recovery.begins == 2
    assert recovery.kinds == ["enqueued", "claimed", "rescued", "claimed", "succeeded"]
    assert recovery.lease_over <= recovery.rescued < recovery.lease_over + 1.5
    assert recovery.rescued < recovery.began_again < LEASE + 2 * POLL + 4


def test_a_job_whose_queue_nobody_serves_is_given_back_and_waits_for_a_worker(
    recoveries: dict[str, Recovery],
) -> None:
    recovery = recoveries["nobody"]
    assert recovery.begins == 2
    assert recovery.kinds == ["enqueued", "claimed", "rescued", "claimed", "succeeded"]
    assert recovery.rescued < LEASE + 1.5


def test_a_job_whose_worker_was_the_last_one_waits_for_the_next_worker(scene: Scene) -> None:
    victim = scene.start("a")
    job_id = enqueue(tasks.linger, 20, 0.2)
    scene.begun(job_id, within=60)
    harm(victim, "group", signal.SIGKILL)
    let_pass(30 if LONG else LEASE + 2)
    assert scene.kinds(job_id) == ["enqueued", "claimed"], "there was nobody to give it back"

    busy = enqueue(tasks.rest, 4, queue="only-b")
    other = scene.start("b")
    scene.succeeds(busy, job_id, within=60)
    _, again = scene.begins(job_id)
    (freed,) = scene.marks(busy, "end")
    assert (again.at - freed.at).total_seconds() < 2 * POLL
    assert scene.kinds(job_id) == ["enqueued", "claimed", "rescued", "claimed", "succeeded"]
    after_check(scene, other)


def test_a_child_silent_for_longer_than_stuck_after_is_killed(scene: Scene) -> None:
    worker = scene.start("a", env={"RELAY_TEST_STUCK_AFTER": "6"}, flags=["--lease", "0.6"])
    job_id = enqueue(tasks.linger, 60, 0.2)
    first = scene.begun(job_id)
    send([first.pid], signal.SIGSTOP)
    wait_until(lambda: first.pid not in worker.children, 15, what="the silent child is killed")
    scene.succeeds(job_id)
    after_check(scene, worker)


def test_a_stopped_child_is_replaced_after_a_lease_and_ends_when_it_goes_on(scene: Scene) -> None:
    worker = scene.start("a", flags=["--lease", "2", "--grace", "1"])
    job_id = enqueue(tasks.linger, 60, 0.2)
    first = scene.begun(job_id)
    stopped = scene.now()
    send([first.pid], signal.SIGSTOP)
    wait_until(lambda: len(worker.children) == 2, 20, what="another child is there")
    (job,) = scene.succeeds(job_id)
    times.note("child stopped: job done by another", stopped, job.finished_at)
    assert scene.kinds(job_id) == ["enqueued", "claimed", "rescued", "claimed", "succeeded"]
    assert first.pid in worker.children
    send([first.pid], signal.SIGCONT)
    wait_until(lambda: first.pid not in worker.children, 20, what="the first one ends")
    after_check(scene, worker)


def test_what_was_fetched_ahead_costs_no_loss_when_its_child_is_killed(scene: Scene) -> None:
    worker = scene.start("a", slots=1, flags=["--prefetch", "1"])
    gate = scene.directory / "gate"
    running = enqueue(tasks.hold, str(gate))
    first = scene.begun(running)
    ahead = enqueue(tasks.noop)
    wait_until(lambda: scene.lease(ahead), 10, what="the other job is fetched ahead")
    send([first.pid], signal.SIGKILL)
    gate.touch()
    for job, losses in zip(scene.succeeds(running, ahead, within=40), (1, 0), strict=True):
        assert job.losses == losses
    assert scene.kinds(ahead)[:3] == ["enqueued", "claimed", "released"]
    after_check(scene, worker)


def test_children_whose_supervisor_was_killed_end_at_once_and_settle_nothing(scene: Scene) -> None:
    worker = scene.start("a", slots=2)
    gate = scene.directory / "gate"
    job_id = enqueue(tasks.hold, str(gate))
    scene.begun(job_id)
    children = worker.children
    send([worker.pid], signal.SIGKILL)
    wait_until(lambda: not any(map(runs, children)), 20, what="its children have ended")
    gate.touch()
    assert scene.kinds(job_id) == ["enqueued", "claimed"]
