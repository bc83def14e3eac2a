"""Many problems on several devices: each problem once, each row once, whatever becomes of searchers and devices."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fleets import Seen, cards, hold, jobs, searchers, simulate, sound
from tuner.core import signals
from tuner.core.errors import Interrupted
from tuner.database.database import Database
from tuner.fleet import searcher
from tuner.fleet.cards import Phase
from tuner.fleet.head import Head
from tuner.fleet.messages import Alive, ChildLink, FromSearcher, OpenDevice, ToSearcher
from tuner.fleet.progress import Announcer
from tuner.kernel.roofline import ARCHITECTURES


def test_problems_are_spread_and_each_is_tuned_once(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = hold(tmp_path)  # until both have one, however long the second takes to start
    simulate(monkeypatch, trial_s=0.03, offset=0.03, noise=0.001, hold=str(held))
    seen, listed = Seen(), jobs(4, trials=4)
    seen.on_tick = lambda _: len(dict(seen.began_on)) > 1 and held.unlink(missing_ok=True)
    listed[3].estimate_s = 10.0
    Head(database, listed, cards(2), seen).run()
    sound(database, runs=4, trials=4)
    assert sorted(seen.results) == list(range(4)) and not seen.failures
    assert seen.began_on[0][1] == listed[3].name or seen.began_on[1][1] == listed[3].name  # the longest first
    assert {device for device, _ in seen.began_on} == {"cuda:0", "cuda:1"}
    assert not searchers()
    runs = {result.run for result in seen.results.values()}
    assert {row["run_id"] for row in database.select("SELECT run_id FROM winners")} == runs


def test_what_a_killed_searcher_has_measured_is_kept_and_goes_on_elsewhere(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(monkeypatch, trial_s=0.05)
    seen, killed = Seen(), []

    def kill(head: Head) -> None:
        measured = database.select("SELECT count(*) AS count FROM trials")[0]["count"]
        searching = [lane.link for card in head.cards for lane in card.of(Phase.SEARCHING)]
        if not killed and measured >= 4 and searching:
            assert isinstance(searching[0], ChildLink) and searching[0]._child is not None
            killed.append(searching[0]._child.pid)
            os.kill(killed[-1], signal.SIGKILL)

    seen.on_tick = kill
    Head(database, jobs(2, trials=6), cards(2), seen).run()
    assert killed
    sound(database, runs=2, trials=6)
    assert sorted(seen.results) == [0, 1]
    assert any("is given out again" in text for text in seen.texts)


def test_heartbeats_say_whether_the_measuring_process_works(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimpleNamespace(
        name="cuda:0", gpu=ARCHITECTURES[90], notes=(), calibration=None, working=False, close=lambda: None
    )
    monkeypatch.setattr(searcher, "open_for_searcher", lambda *_: device)
    monkeypatch.setattr("tuner.fleet.searcher.BEAT_S", 0.01)
    said: queue.SimpleQueue[FromSearcher] = queue.SimpleQueue()
    told: queue.SimpleQueue[ToSearcher | None] = queue.SimpleQueue()
    told.put(OpenDevice("cuda:0", None))
    wire = SimpleNamespace(send=said.put, receive=told.get)
    serving = threading.Thread(
        target=searcher.serve, args=(searcher.Conversation(wire, on_end=lambda: None),), daemon=True
    )
    serving.start()
    for working in (False, True, False):
        device.working = working
        while said.get(timeout=100) != Alive(working):
            pass
    told.put(None)
    serving.join(timeout=100)
    assert not serving.is_alive()


def test_without_a_device_each_problem_says_why(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(monkeypatch, refuse=[0])
    seen = Seen()
    Head(database, jobs(2), cards(1), seen).run()
    assert set(seen.failures) == {0, 1}
    assert all("there is no GPU number 0" in error for error in seen.failures.values())


def test_a_cluster_without_a_worker_says_what_it_waits_for(
    database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tuner.fleet.progress.PLAIN_EVERY_S", 0.0)
    announcer = Announcer(lambda *_: None, lambda *_: None, quiet=False)
    announcer.step(Head(database, jobs(1), [], announcer))
    assert "waiting for a worker" in capsys.readouterr().err


def test_devices_that_cannot_be_opened_or_that_another_program_has_give_their_problems_to_the_others(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(monkeypatch, trial_s=0.02, refuse=[0], hang=[1])
    monkeypatch.setattr("tuner.fleet.head.AWAITED_S", 0.2)
    seen = Seen()
    Head(database, jobs(2, trials=4), cards(3), seen).run()
    sound(database, runs=2, trials=4)
    assert "cuda:0: left out: there is no GPU number 0" in seen.texts
    assert any("another program has this device" in text for text in seen.texts)


def test_stopped_it_says_so_also_where_that_takes_long(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "PATIENCE_S", 0.1)
    monkeypatch.setattr(Head, "_end", lambda _: time.sleep(0.3))
    with signals.stopping(quiet=True) as stop:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Interrupted, match="stopped after 0 of 1 problems"):
            Head(database, jobs(1), [], Seen(), stop).run()


def test_stopped_it_keeps_what_was_measured_and_goes_on_later(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(monkeypatch, trial_s=0.05, hold=str(hold(tmp_path)), held=3)

    def stop() -> bool:
        return database.select("SELECT count(*) AS count FROM trials")[0]["count"] >= 6

    with pytest.raises(Interrupted, match="stopped after 0 of 3 problems"):
        Head(database, jobs(3, trials=20), cards(2), Seen(), stop).run()
    assert not searchers()
    assert not database.select("SELECT * FROM attempts")
    states = {row["state"] for row in database.select("SELECT state FROM runs")}
    assert states == {"interrupted"}
