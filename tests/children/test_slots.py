"""Compilers of several processes take turns."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tuner.children.limits import Slots


def never() -> bool:
    return False


def test_as_many_as_there_are_slots_work_at_a_time(tmp_path: Path) -> None:
    at_work, most, lock = 0, 0, threading.Lock()
    three = threading.Barrier(3)

    def work(slots: Slots) -> None:
        nonlocal at_work, most
        with slots.one(never):
            with lock:
                at_work += 1
                most = max(most, at_work)
            three.wait(100)  # fails where fewer work at a time
            time.sleep(0.05)
            with lock:
                at_work -= 1

    pools = [Slots(tmp_path / "slots", 3) for _ in range(2)]  # as of two processes
    threads = [threading.Thread(target=work, args=(pools[i % 2],)) for i in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not three.broken and most == 3


def test_a_process_that_dies_frees_its_slot(tmp_path: Path) -> None:
    path = tmp_path / "slots"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path; from tuner.children.limits import Slots\n"
            "with Slots(Path(sys.argv[1]), 1).one(lambda: False): print('held', flush=True); input()",
            str(path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    taken = threading.Event()

    def wait() -> None:
        with Slots(path, 1).one(never):
            taken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not taken.wait(0.1)
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    assert taken.wait(100.0)
    thread.join()


def test_nothing_waits_for_a_slot_when_all_is_over(tmp_path: Path) -> None:
    slots = Slots(tmp_path / "slots", 1)
    with slots.one(never), Slots(tmp_path / "slots", 1).one(lambda: True):
        pass
