"""Which worker of pytest-xdist has which files: each file is one's whole, and some are for the first worker alone.

The others do not collect these: files that import torch, for seconds, and those that need a GPU where there is none.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadFileScheduling

from tuner.devices.started import has_gpu

FEW_AND_LONG = (
    "tests/cli/test_bundle_folder.py",
    "tests/cli/test_homeless.py",
    "tests/cli/test_run_process.py",
    "tests/devices/test_measuring_process.py",
    "tests/docs/test_code.py",
    "tests/docs/test_notebooks.py",
    "tests/docs/test_tutorial.py",
    "tests/faults/test_kills.py",
    "tests/fleet/test_cluster.py",
    "tests/inspect/check/test_order.py",
    "tests/inspect/check/test_variants.py",
    "tests/report/html/test_in_browser.py",
    "tests/report/test_run_plot.py",
    "tests/runtime/test_bundle.py",
    "tests/runtime/test_bundles.py",
    "tests/runtime/test_cpp_launcher.py",
    "tests/runtime/test_cpp_programs.py",
    "tests/templates/test_products.py",
    "tests/templates/test_sm90_kernel.py",
    "tests/templates/test_sm90_tiles.py",
    "tests/test_packaging.py",
    "tests/tuning/test_signals.py",
)
"""Files whose few tests take or wait for seconds: at the end, where their number puts them, the other workers wait."""
OF_ONE = "files of one worker"


@functools.cache
def is_of_one(file: Path) -> bool:
    """Return whether a file of tests is collected by one worker alone."""
    if file.parent.name == "gpu" and not has_gpu():
        return True
    return file.suffix == ".py" and 'importorskip("torch")' in file.read_text()


def leaves_out(worker: dict[str, Any], file: Path) -> bool:
    """Return whether a worker with this input leaves a file out: all do that begin but the first."""
    if not worker.get(OF_ONE):
        return False
    return 0 < int(worker["workerid"].removeprefix("gw")) < worker["workercount"] and is_of_one(file)


class Together(LoadFileScheduling):  # type: ignore[misc]
    """Gives the files of one worker to it, first of all; :data:`FEW_AND_LONG` come early."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return OF_ONE if is_of_one(self.config.rootpath / file) else str(file)

    def _check_nodes_have_same_collection(self) -> bool:
        """Return whether all have collected the same but for those tests; the one with all comes first, and is kept.

        A file that is named on the command line is collected by all.
        """
        longest_first = sorted(self.registered_collections.items(), key=lambda item: -len(item[1]))
        self.registered_collections = dict(longest_first)
        self.assigned_work = {
            node: self.assigned_work[node] for node, _ in longest_first if node in self.assigned_work
        }
        shared = [[test for test in tests if self._split_scope(test) != OF_ONE] for _, tests in longest_first]
        return all(tests == shared[0] for tests in shared) or bool(
            super()._check_nodes_have_same_collection()
        )

    def schedule(self) -> None:
        first = self.collection is None
        super().schedule()  # the files with most tests begin
        for file in FEW_AND_LONG if first else ():
            if file in self.workqueue:
                self.workqueue.move_to_end(file, last=False)

    def _assign_work_unit(self, node: Any) -> None:
        if OF_ONE in self.workqueue:
            there = self.workqueue[OF_ONE].keys() <= set(self.registered_collections[node])
            if not there and len(self.workqueue) == 1:  # another's, that is still to come
                return
            self.workqueue.move_to_end(OF_ONE, last=not there)
        super()._assign_work_unit(node)
