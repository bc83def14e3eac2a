"""Answers what a locked-in process asks: this one has the reference, and draws the inputs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cuda.bindings import driver as cu

from tuner.children.measuring import Compare, Compared, Drawn, ForReferee
from tuner.gpu.contents import tried_contents
from tuner.gpu.outside import Exchange
from tuner.gpu.problem import ProblemSession
from tuner.kernel.contents import Content, Tried
from tuner.runtime.driver import check
from tuner.runtime.launches import Buffer


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
            for tensor in self._session.data.outputs:
                self._take(tensor)
            return Compared(self._session.check())
        drawn = Drawn(str(Content.USUAL))
        if question.turn == 1:
            self._tried = tried_contents(self._session, self._seed, quick=question.quick)
        if question.turn:
            tried = next(self._tried, None)
            drawn = Drawn(tried.content, tried.why) if tried is not None else Drawn()
        if drawn.content and not drawn.why:
            for tensor in self._exchange.inputs:
                self._exchange.leave(tensor, self._session.data.first(tensor))
        return drawn

    def _take(self, tensor: Buffer) -> None:
        host = self._exchange.found(tensor)
        check(cu.cuMemcpyHtoD(self._session.data.address(tensor.name), host.ctypes.data, host.nbytes))
