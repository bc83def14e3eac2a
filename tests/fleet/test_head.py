"""How the head gives out problems, with searchers that only answer."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from tests.fleet.answering import RUN, Answering, Fleet
from tuner.core.model import Run, RunOptions
from tuner.database.database import Database
from tuner.fleet import cards, head
from tuner.fleet.head import Head
from tuner.fleet.messages import Alive, Calls, Event, SearcherGone, TaskFailed
from tuner.fleet.remote import call_of
from tuner.kernel.roofline import ARCHITECTURES


@pytest.fixture
def steady_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks at the head's clock 0.1 s pass at most, however long the machine stands still."""
    last = now = time.monotonic()

    def monotonic() -> float:
        nonlocal last, now
        before, last = last, time.monotonic()
        now += min(last - before, 0.1)
        return now

    for module in (cards, head):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=monotonic))


@pytest.mark.parametrize("overlap", [False, True])
def test_one_problem_is_searched_at_a_time_and_one_prepared(database: Database, overlap: bool) -> None:
    fleet = Fleet(database, 1, 3, overlap=overlap)
    most_tasks = most_searching = 0

    def tick(_: Head) -> None:
        nonlocal most_tasks, most_searching
        at_work = [link for link in fleet.on(0) if link.task]
        searching = [link for link in at_work if link.searching]
        most_tasks, most_searching = max(most_tasks, len(at_work)), max(most_searching, len(searching))
        fleet.ticks += 1
        if searching and fleet.ticks % 5 == 0:
            searching[0].end()

    fleet.run(tick)
    assert (most_tasks, most_searching) == (1 + overlap, 1)
    assert len(fleet.seen.results) == 3
    assert all(link.killed for link in fleet.links)


def test_a_problem_that_failed_is_tried_again_alone(database: Database) -> None:
    fleet = Fleet(database, 1, 3)
    failed, beside = [], []

    def tick(_: Head) -> None:
        fleet.ticks += 1
        at_work = [link for link in fleet.on(0) if link.task]
        if not failed and [link.task for link in at_work] == ["0.1", "1.1"]:
            failed.append(at_work[1])
            error = TaskFailed("this problem does not fit on the GPU", "", True)
            fleet.head.events.put(Event(at_work[1], error))
        elif any(link.task == "1.2" and link.searching for link in at_work):
            beside.extend(link.task for link in at_work if link.task != "1.2")
        if failed and fleet.ticks % 5 == 0:
            for link in at_work:
                if link.searching:
                    link.end()

    fleet.run(tick)
    assert len(fleet.seen.results) == 3 and not fleet.seen.failures
    assert not beside


def test_a_searcher_that_ends_after_its_run_has_ended_costs_nothing(database: Database) -> None:
    fleet = Fleet(database, 1, 1)
    run = RUN

    def tick(_: Head) -> None:
        for link in fleet.on(0):
            if link.searching:
                link.searching = False
                begun = Run(
                    run,
                    fleet.jobs[0].task.problem,
                    ARCHITECTURES[90],
                    "cuda:0",
                    RunOptions(sampler="random", trials=8),
                )
                ended = call_of("finish_run", run, "finished", {}, forget_attempts=True)
                calls = (call_of("start_run", begun, {}), ended)
                fleet.head.events.put(Event(link, Calls(link.task, 1, calls)))
                fleet.head.events.put(Event(link, SearcherGone("killed by SIGKILL")))

    fleet.run(tick)
    assert fleet.seen.results[0].run == run
    assert len(database.run_ids()) == 1 and len(fleet.links) == 1


def test_a_problem_whose_searchers_end_is_left_out_after_three(database: Database) -> None:
    fleet = Fleet(database, 1, 3)
    ended: list[str] = []

    def tick(_: Head) -> None:
        for link in fleet.on(0):
            if link.searching and link.task.startswith("0."):
                ended.append(link.task)
                link.gone()
            elif link.searching:
                link.end()

    fleet.run(tick)
    assert list(fleet.seen.failures) == [0] and "tried 3 times" in fleet.seen.failures[0]
    assert ended == ["0.1", "0.2", "0.3"]
    assert set(fleet.seen.results) == {1, 2}
    began = [number for what, number in fleet.seen.order if what == "began"]
    assert began.index(2) > max(i for i, number in enumerate(began) if number == 0), "it is tried again first"


def test_a_searcher_that_only_waited_has_not_ended_because_of_its_problem(database: Database) -> None:
    fleet = Fleet(database, 1, 2)
    ended: list[str] = []

    def tick(_: Head) -> None:
        for link in fleet.on(0):
            prepared = any(what == ("began", 1) for what in fleet.seen.order[len(ended) + 1 :])
            if link.task.startswith("1.") and prepared and not link.searching and len(ended) < 4:
                if link.task not in ended:
                    ended.append(link.task)
                    link.gone()
            elif link.searching and len(ended) == 4:
                link.end()

    fleet.run(tick)
    assert ended == ["1.1", "1.2", "1.3", "1.4"]
    assert set(fleet.seen.results) == {0, 1} and not fleet.seen.failures


def test_a_problem_that_gets_on_may_fail_more_often(database: Database) -> None:
    fleet = Fleet(database, 1, 1)
    ended: list[Answering] = []

    def tick(_: Head) -> None:
        for link in fleet.on(0):
            if link.searching and len(ended) == 5:
                link.end()
            elif link.searching:
                link.wrote(len(ended))
                ended.append(link)
                link.gone()

    fleet.run(tick)
    assert set(fleet.seen.results) == {0} and not fleet.seen.failures
    given = [link.given for link in fleet.links if link.given]
    assert [bool(task.going_on and task.mark) for task in given] == [False, *[True] * 5]


def test_another_gpu_begins_anew(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = {"cuda:0": ARCHITECTURES[90], "cuda:1": ARCHITECTURES[80]}
    monkeypatch.setattr(Answering, "gpu", property(lambda link: gpus[link.device]))
    fleet = Fleet(database, 2, 1)

    def tick(head: Head) -> None:
        for link in fleet.links:
            if link.killed or not link.searching:
                continue
            first = link.task == "0.1"
            if first:
                (card,) = (card for card in head.cards if card.name == link.device)
                card.left_out = "for the test"
                link.wrote(0)
                link.gone()
            else:
                link.end()

    fleet.run(tick)
    last = next(link.given for link in fleet.links if link.given and link.given.key == "0.2")
    assert last.going_on is None and last.mark is None


def test_an_idle_device_takes_what_only_waits_elsewhere(database: Database) -> None:
    fleet = Fleet(database, 2, 3)
    moved: list[str] = []

    def tick(_: Head) -> None:
        at_work = {link.task: link for link in fleet.links if link.searching}
        moved.extend(task for task in at_work if task.endswith(".2"))
        if moved:
            for link in at_work.values():
                link.end()
        elif [link.task for link in fleet.on(0)] == ["0.1", "2.1"] and "1.1" in at_work:
            fleet.on(0)[0].progress(1)
            at_work["1.1"].end()  # cuda:1 has nothing to do, and the third problem waits for cuda:0

    fleet.run(tick)
    assert moved[0] == "2.2"
    assert [device for device, job in fleet.seen.began_on if job == fleet.jobs[2].name] == [
        "cuda:0",
        "cuda:1",
    ]
    assert len(fleet.seen.results) == 3


@pytest.mark.usefixtures("steady_clock")
@pytest.mark.parametrize("lives", [False, True])
def test_a_problem_whose_searcher_stalls_goes_on_elsewhere(
    database: Database, monkeypatch: pytest.MonkeyPatch, lives: bool
) -> None:
    """Its process is stopped; or it runs, and its search hangs. One that compiles for long is left alone."""
    monkeypatch.setattr(cards, "SEARCHING_S" if lives else "SILENT_S", 0.5)
    fleet = Fleet(database, 2, 2)
    began = time.monotonic()

    def tick(_: Head) -> None:
        time.sleep(0.05)  # each word wakes the head
        for link in fleet.links:
            first = link is fleet.links[0]
            if not link.killed and (lives or not first):
                fleet.head.events.put(Event(link, Alive()))
            if link.searching and not first:
                link.progress(1)
                if link.task.startswith("0") or time.monotonic() > began + 1.0:
                    link.end()

    fleet.run(tick)
    assert [device for device, job in fleet.seen.began_on if job == fleet.jobs[0].name] == [
        "cuda:0",
        "cuda:1",
    ]
    assert [link.device for link in fleet.links].count("cuda:0") == 1  # it rests
    (text,) = fleet.seen.texts
    assert "given out again" in text and "0.5 s" in text
    assert len(fleet.seen.results) == 2


@pytest.mark.usefixtures("steady_clock")
@pytest.mark.parametrize(("hangs", "devices"), [("starting", 2), ("preparing", 1)])
def test_a_preparation_that_hangs_goes_on_elsewhere_or_anew(
    database: Database, monkeypatch: pytest.MonkeyPatch, hangs: str, devices: int
) -> None:
    """Of a device or of a problem, while the searcher lives and its measuring process does not work."""
    monkeypatch.setattr(cards, "PREPARING_S", 0.3)
    fleet = Fleet(database, devices, 1, hangs)

    def tick(_: Head) -> None:
        for link in fleet.links:
            fleet.head.events.put(Event(link, Alive()))
            if link.searching:
                link.end()

    fleet.run(tick)
    assert fleet.links[0].killed and len(fleet.seen.results) == 1
    assert any("no progress for 0.3 s" in text for text in fleet.seen.texts)


@pytest.mark.usefixtures("steady_clock")
def test_a_preparation_whose_measuring_process_works_is_left_alone(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cards, "PREPARING_S", 0.2)
    fleet = Fleet(database, 1, 1, "preparing")
    began = time.monotonic()

    def tick(_: Head) -> None:
        (link,) = fleet.links
        fleet.head.events.put(Event(link, Alive(working=True)))
        if link.searching:
            link.end()
        elif link.task and time.monotonic() > began + 0.5:
            link.prepared()

    fleet.run(tick)
    assert len(fleet.seen.results) == 1


@pytest.mark.usefixtures("steady_clock")
def test_a_searcher_that_waited_for_its_turn_has_not_stalled(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cards, "SEARCHING_S", 0.3)
    fleet = Fleet(database, 1, 2)
    began = time.monotonic()

    def tick(_: Head) -> None:
        for link in fleet.links:
            if link.searching and time.monotonic() > began + 0.5:
                link.end()
            elif link.searching:
                link.progress(1)

    fleet.run(tick)
    assert len(fleet.seen.results) == 2 and not fleet.seen.texts


@pytest.mark.usefixtures("steady_clock")
def test_a_device_whose_searchers_stall_is_left_out(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cards, "SILENT_S", 0.3)
    fleet = Fleet(database, 1, 2)
    fleet.head.run()
    assert set(fleet.seen.failures) == {0, 1} and len(fleet.links) <= 4
    assert any("left out" in text for text in fleet.seen.texts)


def test_a_head_that_was_stopped_has_missed_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    for module in (cards, head):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    fleet = Fleet(database, 1, 1)

    def tick(_: Head) -> None:
        fleet.ticks += 1
        if fleet.ticks == 4:
            now[0] += cards.SILENT_S + cards.PAUSE_S
        elif fleet.ticks == 5:
            fleet.links[0].end()

    fleet.run(tick)
    assert len(fleet.links) == 1 and len(fleet.seen.results) == 1
