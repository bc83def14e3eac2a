"""The structure of the sparse matrix: where each row begins, and the columns of its elements."""

import numpy as np


def first(rows, nonzeros, rng):
    """Offsets from 0 to nonzeros, in order: most rows are short, a few long, some empty."""
    cuts = np.sort(rng.integers(0, nonzeros + 1, rows - 1))
    return np.concatenate([[0], cuts, [nonzeros]])


def column(first, columns, rng):
    """Columns in order within each row."""
    row = np.repeat(np.arange(len(first) - 1), np.diff(first))
    drawn = rng.integers(0, columns, len(row))
    return drawn[np.lexsort((drawn, row))]
