"""Read before the tests' own: nothing has imported NumPy yet."""

import os

# Idle threads of BLAS spin, for a quarter of the time of tests that multiply.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# pytest-xdist's workers have one, and no terminal: what commands print would be laid out for it.
os.environ.pop("COLUMNS", None)
