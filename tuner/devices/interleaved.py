"""A race in a measuring process: its contestants, and the one at fault when the process ends."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from tuner.children.measuring import Race, RaceContestant, Raced, RaceFailed
from tuner.core.conditions import Conditions
from tuner.core.errors import DeviceError, TunerError
from tuner.core.model import Problem
from tuner.devices.base import RaceRequest, RaceResult
from tuner.devices.guard import Guard, Unanswered
from tuner.devices.requests import Requests


def race(
    guard: Guard, requests: Requests, problem: Problem, conditions: Conditions, request: RaceRequest
) -> RaceResult:
    """Time contestants in turn, in a process that is set up for the problem.

    Args:
        guard: of the process.
        requests: describe the contestants.
        problem: what is computed.
        conditions: that the process is set up for.
        request: what is timed.

    Raises:
        DeviceError: the process ends again and again.
    """
    described: list[RaceContestant] = []
    try:
        described.extend(requests.contestants(request.contestants, problem))
    except TunerError as error:
        return RaceResult([], failed=len(described), error=str(error))
    mode = request.mode
    batch = None if mode is None else requests.batch(problem, replace(conditions, mode=mode))
    message = Race(tuple(described), request.rounds, request.samples, request.seed, mode, batch)
    answer = guard.call(message)
    if isinstance(answer, Unanswered):  # it does not say at which contestant the process ended
        answer = _culprit(guard, message) or guard.call(message)
    match answer:
        case Raced():
            return RaceResult(
                answer.rounds, answer.tags, verified=answer.verified, sm_clock_hz=answer.sm_clock_hz
            )
        case RaceFailed():
            return RaceResult([], failed=answer.contestant, error=answer.error)
        case Unanswered(fatal=True):
            raise DeviceError(answer.error)
        case Unanswered():
            raise DeviceError(f"the measuring process ended twice in a race: {answer.error}")


def _culprit(guard: Guard, message: Race) -> RaceFailed | Unanswered | None:
    """Let each contestant run alone, and return the answer of the first that fails, under its index."""
    for i, contestant in enumerate(message.contestants):
        answer = guard.call(structs.replace(message, contestants=(contestant,), rounds=1))
        match answer:
            case RaceFailed():
                return structs.replace(answer, contestant=i)
            case Unanswered(fatal=True):
                return answer
            case Unanswered():
                return RaceFailed(answer.error, i)
    return None
