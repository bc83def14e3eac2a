"""Which worker of pytest-xdist has which files: each file is one's whole, and one alone has those that need torch.

Torch takes seconds to import, and a worker that collects a file imports it: the others leave these files out.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadFileScheduling

FEW_AND_LONG = (
    "tests/cli/test_homeless.py",
    "tests/docs/test_notebooks.py",
    "tests/docs/test_tutorial.py",
    "tests/faults/test_kills.py",
    "tests/fleet/test_cluster.py",
    "tests/report/html/test_in_browser.py",
    "tests/runtime/test_cpp_programs.py",
    "tests/templates/test_sm90_tiles.py",
    "tests/test_packaging.py",
)
"""Files whose few tests take or wait for seconds: at the end, where their number puts them, the other workers wait."""
TORCH = "torch"
WITHOUT_TORCH = "without_torch"
"""What a worker's input says to those that leave torch's files out."""


@functools.cache
def needs_torch(file: Path) -> bool:
    """Return whether a file of tests imports torch where there is one."""
    return 'importorskip("torch")' in file.read_text()


def leaves_out_torch(worker: str, count: int) -> bool:
    """Return whether a worker leaves torch's files out: all do that begin but the first."""
    return 0 < int(worker.removeprefix("gw")) < count


class Together(LoadFileScheduling):  # type: ignore[misc]
    """Gives torch's files to the worker that has them, first of all; :data:`FEW_AND_LONG` come early."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return TORCH if needs_torch(self.config.rootpath / file) else str(file)

    def _check_nodes_have_same_collection(self) -> bool:
        """Return whether all have collected the same but for torch's tests; the longest collection comes first."""
        longest_first = sorted(self.registered_collections.items(), key=lambda item: -len(item[1]))
        self.registered_collections = dict(longest_first)
        (_, whole), *others = longest_first
        rest = [test for test in whole if self._split_scope(test) != TORCH]
        return all(tests in (whole, rest) for _, tests in others) or bool(
            super()._check_nodes_have_same_collection()
        )

    def schedule(self) -> None:
        first = self.collection is None
        super().schedule()  # the files with most tests begin
        for file in FEW_AND_LONG if first else ():
            if file in self.workqueue:
                self.workqueue.move_to_end(file, last=False)

    def _assign_work_unit(self, node: Any) -> None:
        if TORCH in self.workqueue:
            (test, *_) = self.workqueue[TORCH]
            there = test in self.registered_collections[node]
            if not there and len(self.workqueue) == 1:  # another's, that is still to come
                return
            self.workqueue.move_to_end(TORCH, last=not there)
        super()._assign_work_unit(node)
