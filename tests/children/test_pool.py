"""Compilers that take for ever, eat the memory or are killed: one trial each, and the pool goes on."""

from __future__ import annotations

import os
import queue
import re
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.faults.kernels import configuration, write_kernel
from tests.faults.processes import gone
from tests.fork_server import NO_FORK
from tuner.children import limits
from tuner.children.compilation import Compilation, ReadRequest, RenderRequest
from tuner.children.compile_pool import CompilePool
from tuner.children.limits import LEAST_BYTES, NICE, memory_limit
from tuner.core import printed
from tuner.core.model import Configuration, Status
from tuner.kernel.load import read_kernel
from tuner.kernel.roofline import ARCHITECTURES

GPU = ARCHITECTURES[90]
GREEDY = "// {{ 'a' | center(10 ** 11) }}\n"


def plain(fault: str = "ok", items: int = 1) -> Configuration:
    return configuration(fault, 32, items)


class Bench:
    """A pool and a kernel in a folder."""

    def __init__(self, folder: Path, pool: CompilePool, source: str | None = None) -> None:
        self.file = write_kernel(folder, faults=("ok",), **({} if source is None else {"source": source}))  # type: ignore[arg-type]
        self.problem = read_kernel(self.file).problem()
        self.pool = pool

    def compile(self, configuration: Configuration) -> Compilation:
        return self.pool.compile(self.request(configuration))

    def request(self, configuration: Configuration) -> RenderRequest:
        return RenderRequest(self.file, self.problem, GPU, configuration)

    def children(self) -> list[int]:
        return [child.pid for child in self.pool._children]


@pytest.fixture
def pool() -> Iterator[CompilePool]:
    pool = CompilePool(jobs=1)
    yield pool
    pool.close()


@pytest.mark.parametrize("users", ["", "glibc.malloc.check=3"])
def test_compilers_get_huge_pages_unless_the_user_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, users: str
) -> None:
    monkeypatch.setenv(NO_FORK, "1")  # /proc has no environment of a fork
    if users:
        monkeypatch.setenv("GLIBC_TUNABLES", users)
    pool = CompilePool(jobs=1)
    try:
        (pid,) = _wait_for_children(Bench(tmp_path, pool))
        environment = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    finally:
        pool.close()
    assert f"GLIBC_TUNABLES={users or 'glibc.malloc.hugetlb=1'}" in environment


@pytest.mark.parametrize(
    ("source", "said"),
    [("{% if %}", "scale.cu.j2:1: "), ("{{ 'a' * 5000000 }}", "limit"), ("int x;", "no kernel named")],
)
def test_template_that_does_not_render(tmp_path: Path, pool: CompilePool, source: str, said: str) -> None:
    bench = Bench(tmp_path, pool, source)
    found = bench.compile(plain())
    assert found.status is Status.COMPILE_ERROR
    assert said in found.error
    assert "\n" not in found.error


def test_template_that_eats_the_memory(tmp_path: Path) -> None:
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pool = CompilePool(jobs=1, memory_limit_bytes=4 << 30)
    try:
        assert Bench(tmp_path, pool, GREEDY).compile(plain()).status is Status.COMPILE_OOM
        assert Bench(tmp_path / "good", pool).compile(plain()).status is Status.OK
    finally:
        pool.close()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10


BOMB = "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}"


LARGE_BOMB = BOMB.replace("x", "{{ j ~ 5000 * 'x' }}")
"""Fills the memory sooner."""


def test_endless_text_that_jinja_collects_costs_one_compilation(tmp_path: Path) -> None:
    source = f"{{% macro m() %}}{LARGE_BOMB}{{% endmacro %}}{{{{ m() }}}}"
    pool = CompilePool(jobs=1, memory_limit_bytes=640 << 20)
    try:
        found = Bench(tmp_path, pool, source).compile(plain())
        assert found.status is Status.COMPILE_OOM
        assert "memory" in found.error
        assert Bench(tmp_path / "good", pool).compile(plain()).status is Status.OK
    finally:
        pool.close()


def test_compilers_share_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    large, small = 512 << 30, 8 << 30
    monkeypatch.setattr(limits, "_available_bytes", lambda: large)
    assert memory_limit(16) == memory_limit(1) == 8 << 30
    monkeypatch.setattr(limits, "_available_bytes", lambda: small)
    assert 4 * memory_limit(4) <= small
    assert memory_limit(64) == LEAST_BYTES


def test_compilation_that_takes_for_ever_is_killed(tmp_path: Path) -> None:
    pool = CompilePool(jobs=1, deadline_s=1.0)
    try:
        bench = Bench(
            tmp_path, pool, "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
        )
        (first,) = _wait_for_children(bench)
        began = time.monotonic()
        found = bench.compile(plain())
        assert found.status is Status.COMPILE_TIMEOUT
        assert "1 s" in found.error
        assert time.monotonic() - began < 100.0
        assert gone(first)
        pool._deadline_s = 100.0  # a machine may be slow
        assert Bench(tmp_path / "good", pool).compile(plain()).status is Status.OK
    finally:
        pool.close()


def test_compiler_killed_from_outside(tmp_path: Path, pool: CompilePool) -> None:
    slow = Bench(
        tmp_path / "slow",
        pool,
        "{% for i in range(99999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
    )
    (pid,) = _wait_for_children(slow)
    before = _cpu_ticks(pid)
    compiling = pool.submit(slow.request(plain()))
    deadline = time.monotonic() + 100.0
    while _cpu_ticks(pid) < before + 10 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    found = compiling.result(timeout=100)
    assert found.status is Status.COMPILE_ERROR
    assert "killed by SIGKILL" in found.error
    assert Bench(tmp_path / "good", pool).compile(plain()).status is Status.OK


def test_idle_compiler_killed_costs_no_compilation(tmp_path: Path, pool: CompilePool) -> None:
    bench = Bench(tmp_path, pool)
    assert bench.compile(plain()).status is Status.OK
    (pid,) = bench.children()
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    assert bench.compile(plain()).status is Status.OK
    assert bench.children() != [pid]


@pytest.mark.parametrize(
    ("missing", "refusal", "status", "words"),
    [
        ("process", OSError(11, "no process"), Status.COMPILE_ERROR, "no process"),
        ("thread", RuntimeError("can't start new thread"), Status.COMPILE_ERROR, "can't start new thread"),
        ("memory", MemoryError(), Status.COMPILE_OOM, "too little memory"),
    ],
)
def test_compilers_that_cannot_be_started(
    missing: str,
    refusal: Exception,
    status: Status,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise refusal

    if missing == "thread":  # the one that reads what a compiler prints
        monkeypatch.setattr(printed, "threading", SimpleNamespace(Thread=refuse, Lock=threading.Lock))
    elif missing == "memory":
        monkeypatch.setattr("tuner.children.compile_pool.Child.send", refuse)
    else:
        monkeypatch.setattr("tuner.children.compile_pool.Child", refuse)
    pool = CompilePool(jobs=2)
    try:
        found = Bench(tmp_path, pool).compile(plain())
    finally:
        pool.close()
    assert found.status is status
    assert words in found.error


def test_an_answer_that_was_not_read_is_not_the_next_ones(
    tmp_path: Path, pool: CompilePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, pool)
    bench.compile(plain())  # the child is there

    def refuse(*_: object) -> None:
        monkeypatch.undo()
        raise MemoryError

    monkeypatch.setattr("tuner.children.compile_pool.Child.receive", refuse)
    assert bench.compile(plain(items=2)).status is Status.COMPILE_OOM
    assert "j < 3" in bench.compile(plain(items=3)).sources[0]


def test_close_is_quick_and_leaves_no_process_and_nobody_waiting(tmp_path: Path) -> None:
    pool = CompilePool(jobs=3)
    slow = Bench(
        tmp_path, pool, "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    )
    pids = _wait_for_children(slow, 3)
    asked = [pool.submit(slow.request(plain(items=items))) for items in (1, 2, 3, 4, 1, 2, 3, 4)]
    time.sleep(0.2)
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 100.0
    assert gone(*pids)
    assert not pool._children
    for thread in pool._threads:
        thread.join(100.0)
        assert not thread.is_alive()
    asked.append(pool.submit(slow.request(plain())))  # by a thread that does not know yet
    assert {one.result(100.0).status for one in asked} == {Status.COMPILE_ERROR}


def test_who_asks_while_compilers_are_closed_is_answered_at_once(tmp_path: Path, pool: CompilePool) -> None:
    pool._closing = True
    asked = pool.submit(Bench(tmp_path, pool).request(plain()))
    assert asked.result(100.0).error == "the compilers were closed"


def test_equal_sources_come_from_the_cache(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for _ in range(2):
        pool = CompilePool(jobs=1, cache=cache)
        try:
            found = Bench(tmp_path / "kernel", pool).compile(plain())
        finally:
            pool.close()
        assert found.status is Status.OK
        assert len(list(cache.rglob("*.cubin"))) == 1


def test_full_disk_costs_the_cache_and_not_the_trial(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    pool = CompilePool(jobs=1, cache=tmp_path / "cache")
    try:
        assert Bench(tmp_path / "kernel", pool).compile(plain()).status is Status.OK
    finally:
        pool.close()


def _cpu_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


def _wait_for_children(bench: Bench, count: int = 1) -> list[int]:
    deadline = time.monotonic() + 100.0
    while len(bench.children()) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    return bench.children()


def test_a_compiler_may_read_a_kernel_before_its_first_configuration(
    tmp_path: Path, pool: CompilePool
) -> None:
    bench = Bench(tmp_path, pool)
    assert pool.compile(ReadRequest(bench.file)).status is Status.OK
    for template in tmp_path.glob("*.j2"):
        template.write_text("{% if %}")
    assert bench.compile(plain()).status is Status.OK


@pytest.mark.parametrize("asked", ["by name", "by a request", "never"])
def test_most_compilers_start_when_they_are_asked_for(tmp_path: Path, asked: str) -> None:
    bench = Bench(tmp_path, CompilePool(jobs=3, at_once=1))

    def come_to(count: int) -> bool:
        ends = time.monotonic() + 10
        while len(bench.children()) != count and time.monotonic() < ends:
            time.sleep(0.01)
        return len(bench.children()) == count

    try:
        assert come_to(1)
        time.sleep(0.2)
        assert len(bench.children()) == 1
        if asked == "by name":
            bench.pool.start_all()
        elif asked == "by a request":
            assert bench.compile(plain()).status is Status.OK
        assert asked == "never" or come_to(3)
    finally:
        bench.pool.close()
    assert not bench.children()


def test_submissions_go_before_what_is_compiled_ahead(tmp_path: Path, pool: CompilePool) -> None:
    bench = Bench(tmp_path, pool)
    bench.compile(plain(items=8))  # the child is there
    (pid,) = bench.children()
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()

    def submit(name: str, items: int, *, ahead: bool) -> Future[Compilation]:
        compiling = pool.submit(bench.request(plain(items=items)), ahead=ahead)
        compiling.add_done_callback(lambda done: done.cancelled() or ended.put(name))
        return compiling

    os.kill(pid, signal.SIGSTOP)
    submit("first", 1, ahead=False)  # keeps the only compiler busy while the others queue
    submit("ahead", 2, ahead=True)
    assert submit("not wanted any more", 3, ahead=True).cancel()
    submit("waited for", 4, ahead=False)
    submit("ahead, too", 5, ahead=True)
    os.kill(pid, signal.SIGCONT)
    assert [ended.get(timeout=100) for _ in range(4)] == ["first", "waited for", "ahead", "ahead, too"]
    assert ended.empty()


def test_kernel_file_that_is_broken_meanwhile(tmp_path: Path, pool: CompilePool) -> None:
    bench = Bench(tmp_path, pool)
    whole = bench.file.read_text()
    bench.file.write_text(whole.replace("[kernel]", "[kernel"))
    assert bench.compile(plain()).status is Status.COMPILE_ERROR
    children = bench.children()
    bench.file.write_text(whole)
    assert bench.compile(plain()).status is Status.OK
    assert bench.children() == children


def test_compilers_come_after_what_measures(tmp_path: Path, pool: CompilePool) -> None:
    bench = Bench(tmp_path, pool)
    bench.compile(plain())
    (pid,) = bench.children()
    here = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, here + NICE)


def test_endless_template_stops_at_the_limit(tmp_path: Path) -> None:
    pool = CompilePool(jobs=1, memory_limit_bytes=2 << 30)
    try:
        began = time.monotonic()
        bench = Bench(tmp_path, pool, BOMB)
        found = bench.compile(plain())
        assert time.monotonic() - began < 100.0
        assert found.status is Status.COMPILE_ERROR
        assert "limit" in found.error
        assert "\n" not in found.error
        (pid,) = bench.children()
        most = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        assert most is not None
        assert int(most[1]) < 300 << 10
    finally:
        pool.close()


def test_damaged_cache_is_not_used(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    found = []
    for _ in range(2):
        pool = CompilePool(jobs=1, cache=cache)
        try:
            found.append(Bench(tmp_path / "kernel", pool).compile(plain()))
        finally:
            pool.close()
        (entry,) = cache.rglob("*.cubin")
        data = bytearray(entry.read_bytes())
        data[-100] ^= 0xFF
        entry.write_bytes(data)
    assert found[0].cubins == found[1].cubins
