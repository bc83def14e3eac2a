"""Read before the tests' own: nothing has imported NumPy yet."""

import os

# Idle threads of BLAS spin, for a quarter of the time of tests that multiply.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
