"""What a boolean mask leaves."""

import numpy as np


def kept(rows, columns, rng):
    """Return three of four elements at random, and at least one of each row: a row without any has no softmax."""
    keep = rng.random((rows, columns)) < 0.75
    keep[np.arange(rows), rng.integers(0, columns, rows)] = True
    return keep
