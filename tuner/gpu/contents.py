"""A candidate on further contents of its problem's inputs; the last is drawn when it has long been loaded.

A referee draws them for a process that is locked in, and says what its outputs are worth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver as cu

from tuner.children.measuring import Compare, Compared, Drawn, ForReferee
from tuner.core.errors import TunerError
from tuner.core.model import Measurement, Status
from tuner.gpu.candidate import Timed
from tuner.gpu.outside import Exchange, Outside
from tuner.gpu.problem import ProblemSession
from tuner.kernel.contents import CONTENTS_S, REMEDY, Content, Tried, further_contents, not_varied
from tuner.kernel.given import Given
from tuner.kernel.python_reference import FURTHER_S
from tuner.runtime.driver import check

REFERENCE_S = 120.0
"""Allowed for a reference on the host."""
SMALL_FACTOR = 16
"""Times the largest problem whose references are compared with each other: up to it users' own code is verified on
further contents in a race, for each of which a reference on the host takes :data:`SMALL_S` at most."""
SMALL_S = 1.0
SPARSE_S = 1.0
"""What a reference may take for a problem of any size, which is then verified on sparse numbers, too."""
OWN_SIZE_S = 0.2
OWN_SIZE = frozenset(Content) - {Content.ZEROS, Content.FAR, Content.NEAR, Content.ABOVE, Content.LATER}
"""What is tried at a problem's own size where the host says within :data:`OWN_SIZE_S` what is right; the others depend
on no size. Else, and where the reference is on the GPU, only sparse numbers are: more takes longer than it is worth."""


class FurtherContents:
    """Verifies a candidate on all of them; the problem's data is of no use for timing afterwards.

    Args:
        session: the problem.
        seed: of the contents but the last.
    """

    def __init__(self, session: ProblemSession, seed: int) -> None:
        self._session, self._seed = session, seed
        self.current = ""
        """The content at work, or nothing."""

    def verify(
        self, timed: Timed, measurement: Measurement, *, quick: bool = False, sparse: bool = False
    ) -> Measurement:
        """Return a measurement with the contents on which the candidate is right, too; or with the first error.

        Args:
            timed: the candidate.
            measurement: of it.
            quick: leave them all out where the reference takes long.
            sparse: only :data:`Content.SPARSE` or, where the host answers, :data:`OWN_SIZE`, whatever the size is.

        Raises:
            DriverFailure: it cannot be run on :attr:`current`, or ruined the context.
        """
        session, contents = self._session, dict[str, str]()
        for tried in tried_contents(session, self._seed, quick=quick, sparse=sparse):
            contents[tried.content] = tried.why
            if tried.result is None:
                continue
            self.current = tried.content
            _, verification = session.first_run(timed, 0.0)
            if verification.wrong:
                error = self.named(verification.message)
                return Measurement(Status.WRONG_RESULT, error=error, verification=verification)
            if not verification.checked:
                contents[tried.content] = verification.message
            self.current = ""
        return replace(measurement, contents=contents)

    def named(self, error: str) -> str:
        """Return an error with the content that it came of and what to do, if it came of one."""
        return f"with {self.current}: {error}; {REMEDY}" if self.current else error


def tried_contents(
    session: ProblemSession, seed: int, *, quick: bool = False, sparse: bool = False
) -> Iterator[Tried[bool]]:
    """Yield further contents, with which the tensors are filled and for which outputs are expected then.

    Args:
        session: the problem.
        seed: of the contents but the last.
        quick: yield none where the reference takes long.
        sparse: yield only sparse numbers or :data:`OWN_SIZE`, from a process that knows what is right.
    """
    verifier, tensors = session.verifier, session.data.tensors
    if isinstance(verifier, Outside):
        if not sparse:
            yield from verifier.tried(quick=quick)
        return
    known = session.data.given if session.data.given and session.data.given.names else None
    if sparse and (max(verifier.host_s, verifier.kernel_s) > SPARSE_S or known):
        return
    if quick and (not verifier.is_small(SMALL_FACTOR) or verifier.host_s > SMALL_S):
        return
    if why := not_varied(tensors, verifier.reference.golden):
        yield Tried("other inputs", None, why)
        return
    took_s = list[float]()

    def expect(numbers: Mapping[str, npt.NDArray[Any]]) -> bool:
        longest = max(took_s, default=0.0)
        if sum(took_s) + (longest or verifier.host_s) > CONTENTS_S or longest > FURTHER_S:
            raise TunerError(f"its reference is too slow: all of them may take {CONTENTS_S:g} s")
        session.set_deadline(REFERENCE_S)
        try:
            verifier.expect_of(numbers)
        finally:
            took_s.append(verifier.answers.last_s)
        return True

    own = OWN_SIZE if verifier.asks_host and verifier.host_s <= OWN_SIZE_S else {Content.SPARSE}
    only = own if sparse else frozenset(Content)
    integers = verifier.asks_host if sparse else verifier.on_host
    given = _given(session, known) if known else None
    yield from further_contents(tensors, expect, seed, integers=integers, later=True, only=only, given=given)


def _given(
    session: ProblemSession, known: Given
) -> Callable[[Mapping[str, npt.NDArray[Any]]], Mapping[str, npt.NDArray[Any]]]:
    """Return what says what the kernel's file gives where random inputs hold such numbers."""
    fixed = session.data.held(known.fixed)
    shapes = {tensor.name: tensor.shape for tensor in session.data.tensors}

    def given(numbers: Mapping[str, npt.NDArray[Any]]) -> Mapping[str, npt.NDArray[Any]]:
        session.set_deadline(REFERENCE_S)
        return known.again({name: np.resize(one, shapes[name]) for name, one in numbers.items()}, fixed)

    return given


class Referee:
    """Knows what is right.

    Args:
        session: the problem, with its reference.
        seed: of the inputs.
        file: the exchange.
    """

    def __init__(self, session: ProblemSession, seed: int, file: Path) -> None:
        self._session, self._seed = session, seed
        self._exchange = Exchange(file, session.data)
        self._tried: Iterator[Tried[bool]] = iter(())

    def answer(self, question: ForReferee) -> Compared | Drawn:
        """Return what outputs are worth, or which inputs lie in the exchange now.

        Raises:
            DriverFailure: the GPU failed.
        """
        if isinstance(question, Compare):
            data = self._session.data
            for tensor in data.outputs:
                host = self._exchange.found(tensor)
                check(cu.cuMemcpyHtoD(data.address(tensor.name), host.ctypes.data, host.nbytes))
            return Compared(self._session.check())
        drawn = Drawn(str(Content.USUAL))
        if question.turn == 1:
            self._tried = tried_contents(self._session, self._seed, quick=question.quick)
        if question.turn:
            tried = next(self._tried, None)
            drawn = Drawn(tried.content, tried.why) if tried is not None else Drawn()
        if drawn.content and not drawn.why:
            for tensor in self._session.data.inputs:
                self._exchange.leave(tensor, self._session.data.first(tensor))
        return drawn
