"""``tune_kernel`` and ``run_kernel`` with the arguments of Kernel Tuner 1.5, and results in its form."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.api.call import in_words
from tuner.api.result import Result
from tuner.api.tune import Kernel, tune
from tuner.compat.kernel_tuner.answers import Judge, after_launch, expected, judge
from tuner.compat.kernel_tuner.arguments import OPTIONS, TUNE_OPTIONS, positive, require, words_of_script
from tuner.compat.kernel_tuner.definition import Definition, configurations, define, is_of, listed
from tuner.compat.kernel_tuner.host_code import HostCode
from tuner.compat.kernel_tuner.results import (
    ERROR,
    Row,
    best_of,
    cached,
    ranked_by,
    row,
    totals,
    with_metrics,
    write_cache,
)
from tuner.compat.kernel_tuner.util import get_config_string
from tuner.core.errors import NoGpuError, TunerError, UsageError, suggestion
from tuner.core.files import temporary_folder
from tuner.core.model import Status
from tuner.kernel.load import load_kernel

STRATEGIES = (
    "brute_force", "random_sample", "minimize", "basinhopping", "diff_evo", "genetic_algorithm", "greedy_mls",
    "ordered_greedy_mls", "greedy_ils", "dual_annealing", "mls", "pso", "simulated_annealing", "skopt",
    "firefly_algorithm", "bayes_opt", "pyatf_strategies", "hybrid_vndx", "adaptive_tabu_greywolf", "nsga2", "nsga3",
)  # fmt: skip
"""Those of Kernel Tuner, all served by one search."""
SERVED = ("fraction", "max_fevals", "time_limit")
"""Of the options of strategies."""
OF_RUN = (
    "device_name", "compute_capability", "uuid", "device_properties", "checked_against", "database", "run",
    "kernel_file",
)  # fmt: skip
"""What the environment says of a run; None where a cache has all results, or for host code."""
MOST_TRIALS, FEWER_TRIALS = 500, 200
"""Of a space with at most the first all configurations are tried, of a larger one as many as the second."""
MOST_COUNTED = 20_000
"""Combinations for which restrictions are evaluated to know how many configurations there are: 0.2 s."""
MOST_JUDGED = 10
"""Configurations that a script's function judges, the fastest first, until one is right."""


@in_words(words_of_script, UsageError)
def tune_kernel(
    kernel_name: str,
    kernel_source: Any,
    problem_size: Any,
    arguments: Sequence[Any],
    tune_params: Mapping[str, Any],
    grid_div_x: Any = None,
    grid_div_y: Any = None,
    grid_div_z: Any = None,
    restrictions: Any = None,
    answer: Sequence[Any] | None = None,
    atol: float = 1e-6,
    **options: Any,
) -> tuple[list[Row], dict[str, Any]]:
    """Return results for the configurations of a kernel that were tried, and the environment.

    Each result has the parameters, ``time`` (the median) and ``times`` in milliseconds, and the metrics; that of a
    configuration that failed has ``__error__`` instead of a time. The environment has the GPU, ``best_config``, what
    results were checked against, and this tuner's database and run.

    Args:
        kernel_name, kernel_source, problem_size, arguments, tune_params: as Kernel Tuner takes them.
        grid_div_x, grid_div_y, grid_div_z, restrictions: likewise.
        answer: the expected value of each argument that the kernel writes, and None for each other one.
        atol: absolute error that is allowed of an element, beside 1e-5 of its value.
        options: the others, by name.

    Raises:
        UsageError: an argument is not served, or wrong; the text says which.
        TunerError: the kernel cannot be tuned.
    """
    began = time.monotonic()
    given = {"kernel_name": kernel_name, "kernel_source": kernel_source, "arguments": arguments}
    require(options, TUNE_OPTIONS, **given, tune_params=tune_params, answer=answer, atol=atol)
    divisors = grid_div_x, grid_div_y, grid_div_z
    what = define(
        kernel_name, kernel_source, problem_size, arguments, tune_params, divisors, restrictions, options
    )
    objective, metrics = options.get("objective") or "time", options.get("metrics") or {}
    if objective not in ("time", *metrics):
        raise UsageError(
            f"objective {objective!r} is not measured", f"choose from: {', '.join(['time', *metrics])}"
        )
    names, cache = list(tune_params), options.get("cache")
    sizes = [] if callable(problem_size) else listed(problem_size)
    old, gpu = cached(cache, names, kernel_name, sizes) if cache else ([], "")
    known = [one for one in old if is_of(what, one)]
    trials, notes = _trials(what, options)
    first = {**what.left_out, **{name: values[0] for name, values in what.choices.items()}}
    # a fault shows now, not after the search
    ranked_by(with_metrics(row(first, Status.OK, [1.0], 1.0), metrics), objective)
    for note in (*what.notes, *notes):
        _say(note, options)
    env: dict[str, Any] = {name: options.get(name) for name in ("iterations", "compiler_options")}
    env |= {**dict.fromkeys(OF_RUN), "device_name": gpu}
    judges, rows = judge(what, answer, options.get("verify"), atol), list[Row]()
    if trials > len(known) and what.host:
        with temporary_folder() as folder:
            rows = HostCode(what, options, judges, folder).try_all(trials - len(known))
    elif trials > len(known):
        if options.get("verify"):
            _require_launchable(options)
            against = {**expected(what, None, atol), "reference": None}
        else:
            against = expected(what, answer, atol)
        rows, found = _checked(what, trials - len(known), against, judges, options)
        env |= found
    rows = [{name: {**one, **what.left_out}[name] for name in names} | one for one in rows]
    tried = [[one[name] for name in names] for one in rows]
    rows += [one for one in known if [one[name] for name in names] not in tried]
    rows = [ranked_by(with_metrics(one, metrics), objective) for one in rows]
    if cache:
        size = "callable" if callable(problem_size) else problem_size
        head = {"device_name": env["device_name"], "kernel_name": kernel_name, "problem_size": size}
        values = {**{name: [value] for name, value in what.left_out.items()}, **what.choices}
        kept = [*rows, *(one for one in old if one not in known)]
        write_cache(cache, head, {name: values[name] for name in names}, kept)
    if all(ERROR in one for one in rows):
        why = (
            f"{rows[0]['status']}: {' '.join(rows[0]['message'].split())[:300]}" if rows else "there is none"
        )
        raise TunerError(
            f"no configuration of {kernel_name} succeeded; the first: {why}", "correct the kernel"
        )
    raced = env.pop("winner", None)
    env["best_config"] = best_of(rows, objective, options.get("objective_higher_is_better"))
    if raced and objective == "time":
        env["best_config"] = next(one for one in rows if raced.items() <= one.items())
    shown = [*tune_params, objective, *metrics]
    best = get_config_string(env["best_config"], shown, {"time": "ms"})
    _say(f"best of {len(rows)} by {objective}: {best}", options)
    return rows, {**env, **totals(rows, time.monotonic() - began)}


def run_kernel(
    kernel_name: str,
    kernel_source: Any,
    problem_size: Any,
    arguments: Sequence[Any],
    params: Mapping[str, Any],
    grid_div_x: Any = None,
    grid_div_y: Any = None,
    grid_div_z: Any = None,
    **options: Any,
) -> list[Any]:
    """Return the arguments as they are after one launch, arrays as NumPy's.

    Args:
        kernel_name, kernel_source, problem_size, arguments: as for :func:`tune_kernel`.
        params: one value of each parameter.
        grid_div_x, grid_div_y, grid_div_z: likewise.
        options: the others, by name.

    Raises:
        UsageError: an argument is not served, or wrong; the text says which.
        TunerError: the kernel cannot be compiled or launched.
    """
    given = {"kernel_name": kernel_name, "kernel_source": kernel_source, "arguments": arguments}
    require(options, OPTIONS, **given, params=params)
    divisors = grid_div_x, grid_div_y, grid_div_z
    what = define(kernel_name, kernel_source, problem_size, arguments, params, divisors, None, options)
    if several := [name for name, values in what.choices.items() if len(values) > 1]:
        raise UsageError(f"params has several values of {several[0]}", "give run_kernel one of each")
    if what.host:
        raise UsageError('run_kernel does not serve lang="C"', "call tune_kernel with an answer")
    _require_launchable(options)
    kernel = Kernel(what.source, what.arguments, what.choices, **what.how, reference=None)
    with temporary_folder() as folder:
        spec = load_kernel(str(kernel.save(folder / "kernel.toml")))
        return after_launch(what, spec, {name: values[0] for name, values in what.choices.items()})


def _require_launchable(options: Mapping[str, Any]) -> None:
    """Refuse what a launch in this process does not do."""
    if options.get("cmem_args"):
        raise UsageError("run_kernel and verify do not fill cmem_args", "give tune_kernel an answer")
    if options.get("device"):
        raise UsageError("what this process launches is on GPU 0", "set CUDA_VISIBLE_DEVICES, not device")


def _say(note: str, options: Mapping[str, Any]) -> None:
    if not options.get("quiet"):
        print(f"kernel-tune: {note}")


def _trials(what: Definition, options: Mapping[str, Any]) -> tuple[int, list[str]]:
    """Return how many configurations are tried, and what the user should know of that.

    Raises:
        UsageError: the strategy is a script's own, or unknown.
    """
    strategy, more = options.get("strategy") or "brute_force", options.get("strategy_options") or {}
    if not isinstance(strategy, str):
        raise UsageError("a strategy of your own is not served", "write one for Optuna: tune run --sampler")
    if strategy not in STRATEGIES:
        raise UsageError(f"there is no strategy {strategy!r}", suggestion(strategy, STRATEGIES))
    size = math.prod(map(len, what.choices.values()))
    if size <= MOST_COUNTED:
        size = sum(1 for _ in configurations(what.choices, what.how["where"]))
    if not size:
        raise UsageError("no configuration meets all restrictions", "loosen one")
    trials = size if size <= MOST_TRIALS else FEWER_TRIALS
    if strategy == "random_sample":
        trials = math.ceil(size * (positive(more, "fraction") or 0.1))
    trials = math.ceil(min(size, positive(more, "max_fevals") or trials))
    left = sorted(map(str, more.keys() - {*SERVED}))
    others = [f"strategy_options: left out: {', '.join(left)}; {suggestion(left[0], SERVED)}"] if left else []
    if what.host:
        note = f"host code is timed by what it returns: {trials} of {size} configurations, drawn at random"
    elif trials < size:
        note = f"strategy {strategy}: this tuner's own search tries {trials} of {size} configurations"
    elif strategy != "brute_force":
        note = f"strategy {strategy}: all {size} configurations are tried"
    else:
        return trials, others
    return trials, [
        *others,
        f"{note} (max_fevals in strategy_options sets how many)" if trials < size else note,
    ]


def _checked(
    what: Definition, trials: int, against: dict[str, Any], judges: Judge | None, options: Mapping[str, Any]
) -> tuple[list[Row], dict[str, Any]]:
    """Return results, unchecked if the parameters change what most configurations compute."""
    if against["reference"] != "default":
        return _tuned(what, trials, against, judges, options)
    try:
        rows, env = _tuned(what, trials, against, None, options)
        others = [one for one in rows if one.get("status") == Status.WRONG_RESULT]
        said = f"{len(others)} of {len(rows)} configurations give other results than the first"
        if 2 * len(others) <= len(others) + sum(ERROR not in one for one in rows):
            if others:
                _say(f"{said}, and count as failures: an answer decides which are right", options)
            return rows, env
    except (NoGpuError, UsageError):
        raise
    except TunerError as error:
        said = error.problem
    _say(f"{said}; so they are timed, and their results not checked: give an answer", options)
    return _tuned(what, trials, {**against, "reference": None}, None, options)


def _tuned(
    what: Definition,
    trials: int,
    against: Mapping[str, Any],
    judges: Judge | None,
    options: Mapping[str, Any],
) -> tuple[list[Row], dict[str, Any]]:
    """Return results, and what is known of the run."""
    run: dict[str, Any] = {
        "trials": trials, "time_s": positive(options.get("strategy_options") or {}, "time_limit"),
        "seed": options.get("seed") or 0, "device": f"cuda:{options.get('device') or 0}", "mode": "warm",
        "from_scratch": True, "quiet": options.get("quiet"),
    }  # fmt: skip
    try:
        result = tune(what.source, what.arguments, what.choices, **what.how, **against, **run)
    except NoGpuError as error:
        raise NoGpuError(
            error.problem, "run it on a machine with one; `tune doctor` says what is missing"
        ) from None
    rows = []
    for trial in result.measured:
        counts = trial.status.ranked or (trial.status is Status.UNVERIFIED and against["reference"] is None)
        time_ms = trial.time_ns / 1e6 if counts and trial.time_ns else None
        took_ms = {"compile": 1e3 * trial.compile_s, "benchmark": 1e3 * trial.measure_s}
        samples = [sample / 1e6 for sample in trial.samples_ns]
        rows.append(row(trial.configuration.values, trial.status, samples, time_ms, trial.error, **took_ms))
    gpu = result.run.gpu
    env: dict[str, Any] = {
        "device_name": gpu.name, "compute_capability": f"{gpu.cc // 10}.{gpu.cc % 10}", "uuid": gpu.uuid,
        "device_properties": gpu.to_json(), "database": str(result.database), "run": result.run.id,
        "kernel_file": str(result.file), "checked_against": result.checked_against,
    }  # fmt: skip
    if against["reference"] is not None:
        env["winner"] = result.best if any(ERROR not in one for one in rows) else None
    elif judges is not None:
        env |= {"winner": _judged(what, result, rows, judges), "checked_against": "verify, the best alone"}
    return rows, env


def _judged(what: Definition, result: Result, rows: list[Row], judges: Judge) -> Row | None:
    """Return the fastest configuration that a script's function finds right; those before it become failures."""
    for one in sorted((one for one in rows if ERROR not in one), key=lambda one: one["time"])[:MOST_JUDGED]:
        values = {name: one[name] for name in what.choices}
        if judges(after_launch(what, result.kernel, values)):
            return values
        rows[rows.index(one)] = row(values, Status.WRONG_RESULT, (), None, "verify says that it is wrong")
    return None
