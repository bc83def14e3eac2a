"""What each element of y should be, and the sum of the absolute values of its terms."""

import numpy as np


def spmv(first, column, value, x):
    """Return the product, and the magnitudes of its sums."""
    rows = len(first) - 1
    row = np.repeat(np.arange(rows), np.diff(first))
    terms = value * x[column]
    return np.bincount(row, terms, rows), np.bincount(row, np.abs(terms), rows)
