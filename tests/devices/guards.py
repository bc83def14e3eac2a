"""Requests to a guard, and its answers."""

from __future__ import annotations

from tuner.children.measuring import Candidate, Measure, Measured, ProblemSetup, ReferenceData, Setup
from tuner.core.conditions import Conditions, Regime
from tuner.core.model import Status
from tuner.devices.guard import Guard, Unanswered
from tuner.kernel.batching import Batch, Limits
from tuner.runtime.launches import Launch, Plan


def measure(fault: str = "ok", block: int = 32) -> Measure:
    plan = Plan((Launch((1, 1, 1), (block, 1, 1), 0, ()),), ())
    return Measure(Candidate(plan, (f"cubin {fault}".encode(),), (f"scale__{fault}",)))


def set_up(seed: int = 5, regime: Regime = Regime.RESTED) -> Setup:
    problem = ProblemSetup((), ReferenceData("float32"))
    return Setup(problem, None, seed, Conditions(regime=regime), Batch(1, 1), Limits(0.0, 0.0, 0.0))


Reply = Measured | Unanswered


def status_of(reply: Reply) -> Status:
    return reply.measurement.status if isinstance(reply, Measured) else reply.status


def unanswered(reply: object) -> Unanswered:
    assert isinstance(reply, Unanswered), reply
    return reply


def assert_good_afterwards(guard: Guard) -> None:
    reply = guard.call(measure("ok", 64))
    assert isinstance(reply, Measured) and reply.measurement.status is Status.OK, reply
