"""A race in a measuring process: its contestants, and the one at fault when the process ends."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from tuner.conditions import Conditions
from tuner.devices.base import Contestant, RaceRound
from tuner.devices.guard import Guard, Unanswered
from tuner.devices.requests import Requests
from tuner.errors import DeviceError, TunerError
from tuner.model import Problem
from tuner.protocol.measuring import Race, RaceContestant, Raced, RaceFailed


def race(
    guard: Guard,
    requests: Requests,
    problem: Problem,
    contestants: Sequence[Contestant],
    rounds: int,
    samples: int,
    seed: int,
    conditions: Conditions | None = None,
) -> RaceRound:
    """Time contestants in turn, in a process that is set up for the problem.

    Args:
        guard: of the process.
        requests: describe the contestants.
        problem: what is computed.
        contestants: configurations and baselines.
        rounds: groups of each.
        samples: of a group, at most.
        seed: of the order within the rounds.
        conditions: those of the race; None for those that the process is set up for.

    Raises:
        DeviceError: the process ends again and again.
    """
    described: list[RaceContestant] = []
    try:
        described.extend(requests.contestants(contestants, problem))
    except TunerError as error:
        return RaceRound([], failed=len(described), error=str(error))
    request = Race(tuple(described), rounds, samples, seed)
    if conditions is not None:
        batch = requests.batch(problem, conditions)
        request = structs.replace(request, mode=conditions.mode, batch=batch)
    answer = guard.call(request)
    if isinstance(answer, Unanswered):  # it does not say at which contestant the process ended
        answer = _culprit(guard, request) or guard.call(request)
    match answer:
        case Raced():
            return RaceRound(
                answer.rounds, answer.tags, verified=answer.verified, sm_clock_hz=answer.sm_clock_hz
            )
        case RaceFailed():
            return RaceRound([], failed=answer.contestant, error=answer.error)
        case Unanswered(fatal=True):
            raise DeviceError(answer.error)
        case Unanswered():
            raise DeviceError(f"the measuring process ended twice in a race: {answer.error}")


def _culprit(guard: Guard, request: Race) -> RaceFailed | Unanswered | None:
    """Let each contestant run alone, and give the answer of the first that fails, under its index."""
    for i, contestant in enumerate(request.contestants):
        answer = guard.call(structs.replace(request, contestants=(contestant,), rounds=1))
        match answer:
            case RaceFailed():
                return structs.replace(answer, contestant=i)
            case Unanswered(fatal=True):
                return answer
            case Unanswered():
                return RaceFailed(answer.error, i)
    return None
