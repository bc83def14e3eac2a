"""tune portfolio on a simulated GPU: what is kept, that it goes on, and what programs make of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tests.simulated_gpu import SimulatedGpu, time_ns
from tuner.children.measuring import Raced, RaceFailed
from tuner.cli.commands.studies import portfolio as command
from tuner.cli.options import ProblemTexts
from tuner.cli.problems import make_problems
from tuner.core.errors import Interrupted, UsageError
from tuner.core.model import Configuration, Problem, canonical_json
from tuner.core.observer import Observer
from tuner.database.database import Database
from tuner.devices.base import RaceRequest
from tuner.kernel.load import load_kernel
from tuner.kernel.render import render
from tuner.runtime.dispatch import Dispatched, Match, dispatch
from tuner.runtime.entries import Manifest
from tuner.runtime.launch_limits import DEVICE_LIMITS
from tuner.runtime.manifest import read_manifest
from tuner.studies.portfolio import Building, Built
from tuner.studies.portfolio_candidates import CandidateChoice
from tuner.studies.portfolio_cover import cover
from tuner.studies.portfolio_races import PortfolioRequest
from tuner.winners.contents import contents_of
from tuner.winners.current import Kernels
from tuner.winners.manifest import CompiledConfiguration, manifest_of, manifest_record
from tuner.winners.portfolios import (
    TIMED,
    Portfolio,
    portfolio_rows,
    stored_portfolios,
    timings_of,
)
from tuner.winners.records import CompiledLaunch

pytestmark = pytest.mark.usefixtures("forked_children")

GEMM = load_kernel("gemm")
GPU = SimulatedGpu().gpu
LIMITS = {name: getattr(GPU, name) for name in DEVICE_LIMITS}
ROW = "m=16..4096,n=512|2048|4096,k=1024|4096,samples=4"
BETWEEN = "m=16..4096,n=1024|1536|3072,k=512|2048|3072,samples=30"


def problems(layouts: str = "nn|nt", row: str = ROW) -> tuple[Problem, ...]:
    return tuple(
        problem
        for layout in layouts.split("|")
        for problem in make_problems(
            GEMM, ProblemTexts(dtypes=["bfloat16"], options=[f"layout={layout}"], problem_texts=[row])
        )
    )


def request(**changes: object) -> PortfolioRequest:
    return PortfolioRequest(GEMM, **{"problems": problems(), "searched": 0, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module", autouse=True)
def one_turn() -> Iterator[None]:
    """Change what is chosen once, not four times: each turn takes as long as all before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tuner.studies.portfolio.TURNS", 1)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Built]:
    path = tmp_path_factory.mktemp("portfolio") / "p.db"
    with Database.open(path) as database:
        return path, Building(request(), SimulatedGpu(), database, Observer()).run()


def test_few_are_kept_and_they_run_every_size_near_its_best(made: tuple[Path, Built]) -> None:
    _, built = made
    assert built.cubins <= 32
    assert len(built.portfolios) == 2
    for portfolio in built.portfolios:
        assert {problem.key for problem in problems()} & {problem.key for problem in portfolio.problems}
        assert 4 < len(portfolio.problems) <= 8  # those that were asked for, and others between
        assert np.median(portfolio.fit.kept) < 1.05
        assert portfolio.fit.kept.max() < 1.25
        assert np.nanmedian(portfolio.fit.chosen) < np.log2(1.15)


def portfolio_of_softmax(dtypes: list[str], cubins: int, path: Path, samples: int = 3) -> Built:
    softmax = load_kernel("softmax")
    rows = [f"rows=64..4096,columns=256..16384:8,samples={samples}"]
    asked = tuple(
        problem
        for dtype in dtypes
        for problem in make_problems(softmax, ProblemTexts(dtypes=[dtype], problem_texts=rows))
    )
    with pytest.MonkeyPatch.context() as patch, Database.open(path) as database:
        patch.setattr("tests.simulated_gpu.time_ns", one_or_two_waves)
        of_rows = PortfolioRequest(softmax, asked, searched=0, cubins=cubins)
        return Building(of_rows, SimulatedGpu(), database, Observer()).run()


def one_or_two_waves(configuration: Configuration, problem: Problem) -> float:
    if "threads_per_row" not in configuration.values:
        return 3e4
    return 1e4 * max(1.0, problem.sizes["columns"] / (8 * int(configuration.values["threads_per_row"])))


def test_defaults_that_go_by_sizes_take_no_room(tmp_path: Path) -> None:
    """Of several dtypes, a default of one is not there anyway for the others."""
    assert portfolio_of_softmax(["bfloat16", "float32"], 8, tmp_path / "p.db").cubins <= 8


def test_cubins_without_room_beside_the_defaults_are_too_few(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="too few beside"):
        portfolio_of_softmax(["float32"], 1, tmp_path / "p.db", samples=2)


def test_no_comparison_ends_after_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(SimulatedGpu):
        """Takes seven seconds for a comparison."""

        def _race(self, request: RaceRequest) -> Raced | RaceFailed:
            nonlocal now
            now += 7.0
            return super()._race(request)

    now = 0.0
    monkeypatch.setattr("tuner.studies.portfolio.time.monotonic", lambda: now)
    with Database.open(tmp_path / "p.db") as database:
        Building(request(problems=problems("nt"), time_s=60.0), Slow(), database, Observer()).run()
    assert 45 < now <= 60


def test_it_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    some = problems("nt", "m=16..4096,n=512|2048,k=1024,samples=2")
    with Database.open(tmp_path / "p.db") as database:
        first, calls = SimulatedGpu(), iter(range(10**6))
        with pytest.raises(Interrupted, match="everything measured is kept"):
            Building(request(problems=some), first, database, Observer(), lambda: next(calls) > 5).run()
        assert first.timed > 0
        second, whole = SimulatedGpu(), SimulatedGpu()
        Building(request(problems=some), second, database, Observer()).run()
    with Database.open(tmp_path / "q.db") as database:
        Building(request(problems=some), whole, database, Observer()).run()
    assert second.timed < whole.timed


def test_a_configuration_that_fails_is_left_out(tmp_path: Path) -> None:
    device = SimulatedGpu()

    def padded(contestants: object) -> int | None:
        names = [one.configuration.variant for one in contestants]  # type: ignore[attr-defined]
        return names.index("wgmma_skinny_m") if "wgmma_skinny_m" in names else None

    device.fail_in_race = padded
    with Database.open(tmp_path / "p.db") as database:
        built = Building(request(problems=problems("nt")[:2]), device, database, Observer()).run()
    variants = {one.variant for portfolio in built.portfolios for one, _ in portfolio.members}
    assert "wgmma_skinny_m" not in variants
    assert "wgmma" in variants


def test_the_last_portfolio_counts_and_its_cubins_are_those_of_a_bundle(
    made: tuple[Path, Built], tmp_path: Path
) -> None:
    path, built = made
    with Database.open(path, write=False) as database:
        database.backup(tmp_path / "copy.db")
    with Database.open(tmp_path / "copy.db") as database:
        few = Building(request(cubins=built.cubins - 2), SimulatedGpu(), database, Observer()).run()
        stored = stored_portfolios(database, GEMM)
        timings = {one.problems[0].kind: one for one in stored}
        assert [one.members for one in stored] == [one.members for one in few.portfolios]
        rows = [row for row in portfolio_rows(database, GEMM) if row.contestant == TIMED]
    assert timings.keys() == {row.problem.kind for row in rows}
    for portfolio in stored:
        kind = portfolio.problems[0].kind
        timed = timings_of(row for row in rows if row.problem.kind == kind)
        for one, problem in portfolio.members:
            own = timed.slowdowns[:, timed.configurations.index(one)]
            assert timed.of(problem)[one] == np.nanmin(own), (
                "it is compiled for where it is nearest to the best"
            )
    configurations = contents_of([], Kernels(), stored).configurations
    sources = {
        source
        for item in configurations
        for source, _ in render(item.kernel, item.problem, item.gpu, item.configuration)
    }
    assert few.cubins == len(sources) + any(item.takes_cluster_order for item in configurations)
    assert few.cubins <= built.cubins - 2


def test_what_is_expected_to_be_the_fastest_elsewhere_is_nearly_that(made: tuple[Path, Built]) -> None:
    with Database.open(made[0], write=False) as database:
        rows = [row for row in portfolio_rows(database, GEMM) if row.contestant == TIMED]
    timings, behind, typical = timings_of(rows), [], []
    choice = CandidateChoice(GEMM, GPU, [], 0)
    for problem in problems(row=BETWEEN)[::16]:
        valid = [one for one in timings.configurations if choice.runs(problem, one)]
        times = {one: time_ns(one, problem) for one in valid}
        first = choice.expected(problem, timings, 1)
        behind.append(times[first[0]] / min(times.values()))
        typical.append(np.median([*times.values()]) / min(times.values()))
    assert np.mean(behind) < 1.08 and np.mean(typical) > 1.2


@pytest.fixture(scope="module")
def stored(made: tuple[Path, Built]) -> tuple[list[Portfolio], bytes]:
    """Return the portfolios as read back, and a manifest with them."""
    path, _ = made
    with Database.open(path, write=False) as database:
        portfolios = stored_portfolios(database, GEMM)
    contents = contents_of([], Kernels(), portfolios)
    name = "0" * 32
    compiled = [
        CompiledConfiguration({number: CompiledLaunch(name, name, "x") for number in item.launches}, None)
        for item in contents.configurations
    ]
    return portfolios, canonical_json(
        manifest_record(manifest_of(contents, compiled, {90: name}, 13))
    ).encode()


def test_the_decision_is_for_sizes_between_those_that_were_measured(
    stored: tuple[list[Portfolio], bytes],
) -> None:
    """Valid configurations only, ranked, near the best of them, and its word is kept."""
    written = read_manifest(stored[1])
    ratios, said = [], []
    for problem in problems(row=BETWEEN):
        found = decided(written, problem)
        assert found.match is Match.PORTFOLIO
        times = [time_of(written.configurations[one], problem) for one, _ in found.ranking]
        slowdowns = [slowdown or 0.0 for _, slowdown in found.ranking]
        assert slowdowns == sorted(slowdowns)
        assert found.ranking[0][0] == found.concrete.configuration
        ratios.append(times[0] / min(times))
        said.append(found.expected_slowdown)
    assert np.median(ratios) < 1.03
    assert np.quantile(ratios, 0.9) < 1.2
    assert all(one is not None and 1 <= one < 2 for one in said)


def decided(written: Manifest, problem: Problem) -> Dispatched:
    computation = [dict(one.options) for one in written.computations].index(dict(problem.options))
    return dispatch(written, computation, problem.sizes, LIMITS, GPU.name)


def time_of(entry: object, problem: Problem) -> float:
    configuration = Configuration.of(entry.variant, dict(entry.parameters))  # type: ignore[attr-defined]
    return time_ns(configuration, problem)


def test_a_changed_kernel_has_no_portfolio(made: tuple[Path, Built]) -> None:
    path, _ = made
    with Database.open(path, write=False) as database:
        variants = {name: one for name, one in GEMM.variants.items() if name != "naive"}
        assert stored_portfolios(database, replace(GEMM, variants=variants)) == []


@pytest.mark.parametrize(
    ("table", "given", "bound", "most", "kept"),
    [
        (
            [[0.0, 0.066], [0.1, 0.066]],
            set(),
            1.05,
            1,
            [1],
        ),  # both within the bound, rather than one at the best
        ([[0.0, 0.066], [0.1, 0.066]], set(), 1.0, 1, [0]),
        ([[0.0, 2.0, 0.1], [2.0, 0.0, 0.1]], set(), 1.01, 1, [2]),  # of those that one cubin has room for
        ([[0.0, 2.0, 0.1], [2.0, 0.0, 0.1]], set(), 1.01, 3, [0, 1, 2]),
        ([[0.01, 0.00999]], {0}, 1.0, 9, [0]),  # not worth another configuration
        ([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]], {0}, 1.0, 2, [0, 1]),  # what is given stays
    ],
)
def test_what_is_chosen(
    table: list[list[float]], given: set[int], bound: float, most: int, kept: list[int]
) -> None:
    (chosen,) = cover([np.array(table)], lambda _, column: {str(column)}, [given], bound, most)
    assert sorted(chosen) == kept


def invoke(
    path: Path, *arguments: str, monkeypatch: pytest.MonkeyPatch, device: SimulatedGpu | None = None
) -> Result:
    monkeypatch.setattr("tuner.cli.configuration.has_gpu", lambda: True)
    monkeypatch.setattr("tuner.cli.portfolio.open_gpu", lambda *_: device or SimulatedGpu())
    return CliRunner().invoke(command, ["-k", "gemm", "--db", str(path), "--search", "0", *arguments])


def test_the_command_and_that_it_measures_nothing_twice(
    made: tuple[Path, Built], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, built = made
    arguments = ("--dtype", "bfloat16", "--option", "layout=nt", "--problem", ROW)
    (sizes,) = [len(one.problems) for one in built.portfolios if one.problems[0].options["layout"] == "nt"]
    said = invoke(path, *arguments, monkeypatch=monkeypatch)
    assert said.exit_code == 0, said.output
    assert f"for {sizes} measured sizes" in said.output
    device = SimulatedGpu()
    again = invoke(path, *arguments, "--json", "-q", monkeypatch=monkeypatch, device=device)
    assert device.timed == 0
    answer = json.loads(again.stdout)
    assert not again.stderr
    (only,) = answer["portfolios"]
    assert answer["cubins"] <= 32
    assert f"{len(only['members'])} configurations for" in said.output
    assert only["left_out_worst"] >= only["left_out_median"] >= 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--problem", "m=16"), "at least 2"),
        (("--problem", "m=16..64"), "samples=N"),
        (("--problem", "m=64..16,samples=2"), "holds no size"),
        (("--problem", "m=1|,samples=2"), "empty choice"),
        (("--problem", "m=1|2,samples=0"), "draw from 1"),
        (("--problem", "m=1|2", "--device", "replay"), "needs a GPU"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = invoke(tmp_path / "p.db", *arguments, monkeypatch=monkeypatch)
    assert isinstance(result.exception, UsageError)
    assert said in str(result.exception)
    assert "\n" not in str(result.exception)


def test_rows_of_problems_may_mean_several() -> None:
    assert len(problems("nt", "m=1|2|3,n=64|128")) == 6
    drawn = problems("nt", "m=16..8192:8,n=64,samples=20")
    assert len(drawn) == 20
    assert all(16 <= one.sizes["m"] <= 8192 and one.sizes["m"] % 8 == 0 for one in drawn)
    assert sum(one.sizes["m"] < 362 for one in drawn) >= 5  # half of them, by the logarithm
    assert drawn == problems("nt", "m=16..8192:8,n=64,samples=20")
