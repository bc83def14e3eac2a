"""What races.cu computes."""

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


def sums(x: Numbers) -> tuple[Numbers, Numbers]:
    """Return each row's sum, and its first number added to that of the row 64 before."""
    before = np.concatenate([np.zeros(64), x[:-64, 0]])[: len(x)]
    return x.sum(axis=1), x[:, 0] + before
